"""The agent's side of the zygote: a worker in a millisecond, or None and the reason for a fresh interpreter."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from lattice.errors import WorkerNotStarted
from lattice.process.newborns import Line, Newborn
from lattice.process.preloading import PythonCommand
from lattice.process.spawning import Guard
from lattice.process.workers import Worker

PROGRAM = str(Path(__file__).resolve().parent / "zygote")
DEVICES = ("/dev/nvidia", "/dev/kfd")
FORK_TIMEOUT = 10.0
BREATHER = 2.0
"""seconds after the start of workers before spare ones are forked: first come those who train"""
LONG_LIFE = 10.0
"""a zygote that lived this long is replaced at once; others after a pause, longer each time"""
LONGEST_PAUSE = 60.0


class Zygote:
    """
    One warm interpreter for the workers of this node, started at once and ready some time later.

    It forks as many workers as a round needs before they are needed: children of this process that wait for the word.
    Its death touches no worker. It is replaced when it dies or hangs, or when something that it imported has changed.
    """

    def __init__(
        self,
        guard: Guard,
        command: PythonCommand,
        environ: Mapping[str, str],
        cwd: str,
        marker: str,
        preload: Sequence[str],
        late: Collection[str],
        spares: int = 1,
        devices: Sequence[str] = DEVICES,
    ) -> None:
        """
        Start it.

        :param guard: starts it, and looks after its workers
        :param command: what the workers execute
        :param environ: the environment that all workers share; late variables in it are left out
        :param cwd: the workers' directory
        :param marker: name of the variable by which everything descended from a worker is found
        :param preload: modules to import
        :param late: names of the variables that a worker may have on top of that environment
        :param spares: how many workers to fork ahead
        :param devices: how the paths of devices begin that no zygote may hold open
        """
        self._guard = guard
        self._command = command
        self._late = frozenset(late)
        self._environ = {name: value for name, value in environ.items() if name not in self._late}
        self._cwd = cwd
        self._marker = marker
        self._preload = list(preload)
        self._spares = spares
        self._devices = tuple(devices)
        self._notes: list[str] = []
        self._noted: set[str] = set()
        self._worker: Worker | None = None
        self._line: Line | None = None
        self._newborns: list[Newborn] = []
        self._said = -1
        self._began = 0.0
        self._importing = ""
        self._pause = 0.0
        self._poll = select.epoll()
        self._restart_at: float | None = None
        self._refill_at: float | None = None
        self.ready = False
        """whether it can fork"""
        self.facts: dict[str, object] = {}
        """what it said of itself: imported, skipped, took, threads, files, python"""
        self.reason = ""
        """why the last fork gave nothing"""
        self._start()

    def fileno(self) -> int:
        """Give a descriptor for selectors, the same for the whole life: readable means call :meth:`handle`."""
        return self._poll.fileno()

    @property
    def deadline(self) -> float | None:
        """Tell when to call :meth:`handle` if nothing happens before."""
        moments = [moment for moment in (self._restart_at, self._refill_at) if moment is not None]
        return min(moments, default=None)

    @property
    def starting(self) -> bool:
        """Whether it may become ready without anything else happening."""
        return self._worker is not None and not self.ready

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that a sweep has to spare: the zygote and the workers that wait."""
        waiting = [newborn.worker.pid for newborn in self._newborns if newborn.worker is not None]
        return (*([self._worker.pid] if self._worker else []), *waiting)

    def take_notes(self) -> tuple[str, ...]:
        """Give what the user should be told, each thing once."""
        notes, self._notes = tuple(self._notes), []
        return notes

    def handle(self) -> None:
        """Take what was said, notice deaths, and do what it is time for. Waits for nothing."""
        for newborn in tuple(self._newborns):
            newborn.hear(self._guard)
            if newborn.line.ended:
                self._drop(newborn)
        line = self._line
        for message in line.take() if line is not None else ():
            if self._line is line:  # otherwise it has just been replaced, and what the old one said is void
                self._heard(message)
        if line is not None and self._line is line and line.ended:
            self._died()
        now = time.monotonic()
        if self._restart_at is not None and now >= self._restart_at:
            self._start()
        if self._refill_at is not None and now >= self._refill_at:
            self._refill_at = None
            while self.ready and len(self._newborns) < self._spares:
                self._conceive()

    def check(self) -> None:
        """Have it look whether imported files have changed, and be replaced if so. For moments without hurry."""
        if self.ready and self._line is not None:
            self._line.send(("check",))

    def fork(self, environ: Mapping[str, str], cwd: str, stdin: int | None, stdout: int, stderr: int) -> Worker | None:
        """
        Give a worker in a session of its own, with no descriptors but these three.

        :param environ: its whole environment
        :param cwd: its working directory
        :param stdin: descriptor for its standard input, None for /dev/null
        :param stdout: descriptor for its standard output; the caller closes its own copy
        :param stderr: descriptor for its standard error; the caller closes its own copy
        :return: the worker, already a child of this process; None if a fresh interpreter is needed: see ``reason``
        """
        self.handle()
        self.reason = self._objection(environ, cwd)
        if self.reason:
            return None
        deadline = time.monotonic() + FORK_TIMEOUT
        born = [newborn for newborn in self._newborns if newborn.worker is not None]
        newborn = (born or self._newborns)[0] if self._newborns else self._conceive()
        while newborn.worker is None:
            if not self._wait(newborn, deadline):
                return None
        self._newborns.remove(newborn)
        self._poll.unregister(newborn.line)
        late = {os.fsencode(name): os.fsencode(value) for name, value in environ.items() if name in self._late}
        answer = newborn.wake(late, cwd, stdin, stdout, stderr, within=FORK_TIMEOUT)
        newborn.line.close()
        self._refill_at = time.monotonic() + BREATHER
        if answer == ("alive",):
            return newborn.worker
        _end_process(newborn.worker)
        self.reason = "the worker died before it began" if newborn.line.ended else "the worker did not wake up"
        self._heard(answer)
        return None

    def close(self) -> None:
        """End it and the workers that wait. Those at work go on."""
        self._restart_at = self._refill_at = None
        self._end()
        self._poll.close()

    def _objection(self, environ: Mapping[str, str], cwd: str) -> str:
        if not self.ready:
            return self.reason or "the zygote is not ready yet"
        if cwd != self._cwd:
            return f"the working directory is {cwd}, not {self._cwd}"
        here = {name: value for name, value in environ.items() if name not in self._late}
        if here == self._environ:
            return ""
        names = sorted(name for name in {*here, *self._environ} if here.get(name) != self._environ.get(name))
        return f"other variables than those of a round differ from the zygote's: {', '.join(names)}"

    def _conceive(self) -> Newborn:
        ours, theirs = socket.socketpair()
        newborn = Newborn(Line(ours))
        with theirs:
            assert self._line is not None
            self._line.send(("fork",), (theirs.fileno(),))
        self._newborns.append(newborn)
        self._poll.register(newborn.line, select.EPOLLIN)
        return newborn

    def _wait(self, newborn: Newborn, deadline: float) -> bool:
        """Wait for anything to happen; False if this one will never be born."""
        left = deadline - time.monotonic()
        if left <= 0:
            self.reason = f"the zygote did not answer in {FORK_TIMEOUT:.0f}s"
            self._died()
            return False
        self._poll.poll(left)
        self.handle()
        if newborn in self._newborns:
            return True
        self.reason = self.reason or "the worker died before it was born"
        return False

    def _start(self) -> None:
        self._restart_at = None
        self._began = time.monotonic()
        self._importing = ""
        path = self._environ.get("PYTHONPATH")
        environ = {**self._environ, "PYTHONPATH": f"{PROGRAM}{os.pathsep}{path}" if path else PROGRAM}
        orders = {
            "agent": os.getpid(),
            "pythonpath": None if path is None else os.fsencode(path),
            "modules": self._preload,
            "late": sorted(self._late),
            "folder": self._command.folder,
            "devices": list(self._devices),
        }
        ours, theirs = socket.socketpair()
        self._line = Line(ours)
        self._poll.register(self._line, select.EPOLLIN)
        said, self._said = os.memfd_create("zygote"), os.memfd_create("zygote")
        try:
            # What this executes does nothing at all, unless our program gets hold of it.
            nothing = (*self._command.options, "-c", "")
            argv = (self._command.interpreter, *nothing)
            self._worker = self._guard.spawn(argv, environ, self._cwd, theirs.fileno(), said, self._said, self._marker)
        except WorkerNotStarted as error:
            self._give_up(str(error))
            return
        finally:
            theirs.close()
            os.close(said)
        self._line.send(("become", len(nothing), [os.fsencode(word) for word in self._command.argv[1:]]))
        self._line.send(("begin", orders))

    def _heard(self, message: tuple[object, ...]) -> None:
        match message:
            case ("importing", str(name)):
                self._importing = name
            case ("unsafe", str(name), str(reason)):
                self._skip(name, reason)
            case ("ready", dict(facts)):
                self.facts, self.ready, self.reason = facts, True, ""
                self._importing = ""
                for name, reason in facts["skipped"]:
                    self._note(f"preload {name}: {reason}, skipped")
                self._refill_at = time.monotonic()
            case ("stale", str(reason)):
                self._end()
                self.reason = reason
                self._start()
            case ("cold", str(reason)):
                self.reason = reason

    def _note(self, text: str) -> None:
        if text not in self._noted:
            self._noted.add(text)
            self._notes.append(text)

    def _skip(self, name: str, reason: str) -> None:
        """Do without a module, in a new interpreter: an import cannot be undone."""
        self._note(f"preload {name}: {reason}, skipped")
        self._preload.remove(name)
        self._end()
        if self._preload:
            self._start()
        else:
            self._give_up("nothing is left to preload")

    def _died(self) -> None:
        lived = time.monotonic() - self._began
        words = self._last_words()
        how = self._end(patience=0.1)
        if self._importing:
            self._skip(self._importing, f"the interpreter died of it ({how}){words}")
        elif not self.facts:
            self._give_up(f"{self._command.interpreter} runs no zygote ({how}){words}")
        else:
            self.reason = self.reason or f"the zygote died ({how}){words}"
            self._pause = 0.0 if lived > LONG_LIFE else min(max(2 * self._pause, 1.0), LONGEST_PAUSE)
            self._restart_at = time.monotonic() + self._pause

    def _give_up(self, reason: str) -> None:
        self._end()
        self.reason = reason
        self._note(f"no warm starts: {reason}")

    def _end(self, patience: float = 0.0) -> str:
        self.ready = False
        self._refill_at = None
        how = "gone"
        while self._newborns:
            self._drop(self._newborns[0])
        if self._line is not None:
            self._poll.unregister(self._line)
            self._line.close()
            self._line = None
        if self._worker is not None:
            how = _end_process(self._worker, patience)
            self._worker = None
        if self._said >= 0:
            os.close(self._said)
            self._said = -1
        return how

    def _drop(self, newborn: Newborn) -> None:
        self._newborns.remove(newborn)
        self._poll.unregister(newborn.line)
        newborn.line.close()
        if newborn.worker is not None:
            _end_process(newborn.worker)

    def _last_words(self) -> str:
        words = os.pread(self._said, 1 << 16, 0).decode(errors="replace").strip() if self._said >= 0 else ""
        return f": {words.splitlines()[-1]}" if words else ""


def _end_process(worker: Worker, patience: float = 0.0) -> str:
    """Kill a process if it does not end by itself, and take its exit status: how it ended."""
    poll = select.poll()
    poll.register(worker.pidfd, select.POLLIN)
    poll.poll(patience * 1000)
    worker.signal(signal.SIGKILL)
    poll.poll(FORK_TIMEOUT * 1000)
    how = str(worker.poll())
    worker.close()
    return how
