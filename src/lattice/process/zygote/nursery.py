"""Imports what is safe to import before a fork, and forks workers for the agent as long as forking is safe."""

# ruff: noqa: PTH110, PTH115, PTH116, PTH117, PTH118, PTH120, PTH123, PTH208, UP031
# Runs on Python 3.8 and later, see sitecustomize.py.

from __future__ import annotations

import gc
import os
import sys
import time

import newborn  # type: ignore[import-not-found]
from control import Control  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FOREVER_OPEN = ("/dev/null", "/dev/urandom", "/dev/random", "/dev/zero")
INSTALLED = ("/site-packages/", "/dist-packages/")
STANDARD_LIBRARY = os.path.dirname(os.__file__) + "/"
MOST_FILES = 4096
NEVER = (1 << 31) - 1


class Watched(type(os.environ)):  # type: ignore[misc]
    """The environment during imports: remembers which of the variables that only workers have was asked for."""

    late: frozenset[str] = frozenset()
    asked: list[str] = []  # noqa: RUF012

    def __getitem__(self, name: str) -> str:
        if name in self.late:
            self.asked.append(name)
        return super().__getitem__(name)  # type: ignore[no-any-return]


def threads() -> int:
    """Count native threads."""
    return len(os.listdir("/proc/self/task"))


def descriptors() -> dict[int, str]:
    """List what is open."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink("/proc/self/fd/" + name)
        except OSError:
            pass  # the listing itself
    return found


def module_files(names: set[str]) -> dict[str, str]:
    """Give the files of modules that come from files."""
    found = {}
    for name in names:
        file = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
        if isinstance(file, str) and os.path.isabs(file):
            found[name] = file
    return found


def installed_at(file: str) -> int:
    """Tell where the path within site-packages begins; 0 outside of it."""
    return max(file.rfind(part) + len(part) if part in file else 0 for part in INSTALLED)


def is_own(file: str, folder: str) -> bool:
    """Tell whether a file belongs to the user's script, which must be read anew in every round."""
    if not folder or not file.startswith(folder.rstrip("/") + "/") or file.startswith(STANDARD_LIBRARY):
        return False
    return installed_at(file) <= len(folder)


def fingerprint(path: str) -> tuple[int, int] | None:
    """Tell a version of a file from others."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


class Nursery:
    """The modules that every worker has from birth."""

    def __init__(self, known: set[str], orders: dict[str, object]) -> None:
        self.agent: int = orders["agent"]  # type: ignore[assignment]
        self.modules: list[str] = orders["modules"]  # type: ignore[assignment]
        self.folder: str = orders["folder"]  # type: ignore[assignment]
        self.devices: tuple[str, ...] = tuple(orders["devices"])  # type: ignore[arg-type]
        self.late: frozenset[str] = frozenset(orders["late"])  # type: ignore[call-overload]
        self.skipped: list[tuple[str, str]] = []
        self.files: dict[str, tuple[int, int] | None] = {}
        self._known = known
        self._open = descriptors()
        self._listed: tuple[int, int] | None = None
        self._shadowing = ""

    def preload(self, control: Control) -> None:
        """Import everything; the first thing that spoils this process ends it, with the name of who did."""
        # What is imported stays: to look through it for garbage, again and again, takes a tenth of the time.
        thresholds = gc.get_threshold()
        gc.set_threshold(NEVER)
        # Alone it keeps OpenBLAS, hence numpy, from starting threads. Workers get it back with all their threads.
        blas = os.environ.get("OPENBLAS_NUM_THREADS")
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        plain = type(os.environ)
        Watched.late = self.late
        os.environ.__class__ = Watched
        for name in self.modules:
            control.send("importing", name)
            try:
                __import__(name)
            except ModuleNotFoundError as error:
                if not (name + ".").startswith(str(error.name) + "."):
                    self._give_up(control, name, "importing it failed: " + repr(error))
                self.skipped.append((name, "not installed"))
            except BaseException as error:
                self._give_up(control, name, "importing it failed: " + repr(error))
            harm = self._harm()
            if harm:
                self._give_up(control, name, harm)
        os.environ.__class__ = plain
        if blas is None:
            del os.environ["OPENBLAS_NUM_THREADS"]
        else:
            os.environ["OPENBLAS_NUM_THREADS"] = blas
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        self._remember_files()
        newborn.find_blas()
        if gc.get_threshold()[0] == NEVER:  # otherwise a module has its own idea
            gc.set_threshold(*thresholds)
        gc.freeze()

    def trouble(self) -> tuple[str, str] | None:
        """Say why a fork of this would not be a sound worker now; nothing if it would be."""
        for path, before in self.files.items():
            if fingerprint(path) != before:
                return "stale", path + " has changed"
        if threads() != 1:
            return "cold", "the zygote has %d native threads" % threads()
        for target in descriptors().values():
            if target.startswith(self.devices):
                return "cold", "the zygote holds " + target + " open"
        shadow = self._shadow()
        return ("cold", shadow) if shadow else None

    def _harm(self) -> str:
        if Watched.asked:
            return "reads " + Watched.asked[0] + " while it is imported"
        for number, target in descriptors().items():
            if number not in self._open and target not in FOREVER_OPEN:
                return "leaves " + target + " open"
        if threads() != 1:
            return "starts a native thread"
        for file in module_files(set(sys.modules) - self._known).values():
            if is_own(file, self.folder):
                return "imports " + file + ", which must be read anew by every worker"
        return ""

    def _give_up(self, control: Control, name: str, reason: str) -> None:
        control.send("unsafe", name, reason)
        os._exit(0)

    def _remember_files(self) -> None:
        for name, file in module_files(set(sys.modules) - self._known).items():
            position = installed_at(file)
            if file.startswith(STANDARD_LIBRARY) and not position:
                continue
            # Installers replace whole packages: one file of each tells.
            top = file[:position] + name.split(".")[0] + "/__init__.py"
            if position and top in self.files:
                continue
            telling = top if position and os.path.exists(top) else file
            if len(self.files) < MOST_FILES:
                self.files.setdefault(telling, fingerprint(telling))

    def _shadow(self) -> str:
        """Look for files beside the script that would have been imported in place of what is already there."""
        if not self.folder:
            return ""
        listed = fingerprint(self.folder)
        if listed != self._listed:
            self._listed = listed
            tops = {name.split(".")[0] for name in set(sys.modules) - self._known}
            try:
                entries = os.listdir(self.folder)
            except OSError:
                entries = []
            self._shadowing = ""
            for entry in entries:
                name, _, suffix = entry.partition(".")
                package = not suffix and os.path.exists(os.path.join(self.folder, entry, "__init__.py"))
                if name in tops and (package or suffix in ("py", "pyc") or suffix.endswith("so")):
                    self._shadowing = os.path.join(self.folder, entry) + " takes the place of module " + name
        return self._shadowing


def main(known: set[str], leave_no_trace: Callable[[], None]) -> None:
    """Serve the agent; returns in every worker, when it may read its script."""
    control = Control(os.dup(0))
    message, _ = control.receive()
    if message[0] == "become":
        # What was executed may have been a script that found the interpreter to use: it has done its work.
        with open("/proc/self/cmdline", "rb") as cmdline:
            words = cmdline.read().split(b"\0")[:-1]
        words[-message[1] :] = message[2]
        os.execvp(words[0], words)
    orders = message[1]
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    if orders["pythonpath"] is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environb[b"PYTHONPATH"] = orders["pythonpath"]
    leave_no_trace()
    began = time.monotonic()
    nursery = Nursery(known, orders)
    nursery.preload(control)
    control.send(
        "ready",
        {
            "imported": [name for name in nursery.modules if name in sys.modules],
            "skipped": nursery.skipped,
            "took": time.monotonic() - began,
            "threads": threads(),
            "files": len(nursery.files),
            "python": sys.version.split()[0],
        },
    )
    while True:
        message, received = control.receive()
        trouble = nursery.trouble()
        if trouble:
            control.send(*trouble)
        elif message[0] == "fork":
            try:
                go = fork()
            except OSError as error:
                control.send("cold", "cannot fork: " + str(error))
            else:
                if go is not None:
                    control.close()
                    return live(nursery, Control(received[0]), go)
        for descriptor in received:
            os.close(descriptor)


def fork() -> int | None:
    """
    Fork twice, so that the worker is given to the agent, the nearest subreaper.

    :return: in the worker, a descriptor that says when that has happened; None in the zygote
    """
    go_read, go_write = os.pipe()
    middle = -1
    try:
        middle = os.fork()
        if middle == 0:
            code = 0
            try:
                if os.fork() == 0:
                    os.close(go_write)
                    return go_read
            except OSError as error:
                code = error.errno or 255
            os._exit(code)
        _, status = os.waitpid(middle, 0)
        if status:
            code = os.WEXITSTATUS(status)
            raise OSError(code, os.strerror(code))
        os.write(go_write, b"!")
    finally:
        if middle != 0:
            os.close(go_read)
            os.close(go_write)
    return None


def live(nursery: Nursery, leash: Control, go: int) -> None:
    """Attach to the agent, wait for its word, and become the worker that it names."""
    newborn.attach(nursery.agent, go)
    leash.send("born", os.getpid())
    message, descriptors = leash.receive()
    trouble = nursery.trouble()
    if trouble:
        leash.send(*trouble)
        os._exit(0)
    _, variables, cwd, has_stdin = message
    try:
        said = newborn.take_streams(has_stdin, descriptors)
        os.chdir(cwd)
        os.environb.update(variables)
        newborn.renew_streams()
        newborn.renew_finders()
        newborn.renew_chance()
    except BaseException as error:
        leash.send("cold", repr(error))
        os._exit(0)
    leash.send("alive")
    leash.close()
    newborn.repeat(said)
    newborn.renew_blas()
    newborn.note_group()
    newborn.hurry_group()
    newborn.note(newborn.ENTERED)
