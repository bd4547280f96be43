"""
Where a function comes from: the caller's module search path, its arguments, and the source of the modules beside it.

Functions of modules are pickled by name, so a worker must find the same modules. It looks where the caller would, and
for modules of the caller's own folder that are not there, because the host does not share it, it takes the source
that came along. They are modules as any other then, with one set of globals and lines in tracebacks; pickling them by
value would give neither, and fail at the first lock among their globals.
"""

from __future__ import annotations

import importlib.machinery
import linecache
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, ModuleType

from lattice.launching.sync.places import moved, places

MOST_TEXTS = 1000
"""cells of a notebook that are shown in tracebacks"""


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a module."""

    path: str
    text: bytes
    is_package: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a worker needs to know of the process that wants it to run something."""

    first: tuple[str, ...] = ()
    """entries of the module search path before those of Python itself"""
    last: tuple[str, ...] = ()
    """and after them"""
    argv: tuple[str, ...] = ()
    main: str = ""
    """the path of the script; empty where there is none, as in a notebook"""
    sources: Mapping[str, Source] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    """by file name: the script, and what was typed into a notebook, whose functions travel by value"""
    inside: Mapping[str, str] = field(default_factory=dict)
    """which of these paths are in the project that is sent to hosts, and where in it"""


def observe(*, sources: bool = True, project: Path | None = None) -> Surroundings:
    """
    Describe this process.

    :param sources: whether to take along the source of modules that lie beside the script, or in the working directory
    :param project: the folder that is sent to hosts
    """
    first: list[str] = []
    last: list[str] = []
    entries = first
    for entry in sys.path:
        path = os.path.abspath(entry)  # noqa: PTH100 - an empty entry is the working directory
        if is_installed(path):
            entries = last  # what comes after Python's own folders must not come before them there
        elif path not in first and path not in last:
            entries.append(path)
    main = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    script = os.path.abspath(main) if main else ""  # noqa: PTH100
    folders = {str(Path(script).parent) if script else os.getcwd(), os.getcwd()}  # noqa: PTH109
    return Surroundings(
        tuple(first),
        tuple(last),
        tuple(sys.argv),
        script,
        _own_sources(folders - {"/"}) if sources else {},
        _typed_texts(script) if sources else {},
        places(str(project), filter(None, (*first, *last, script, *sys.argv[:1]))) if project is not None else {},
    )


def enter(surroundings: Surroundings, folder: str = "") -> Surroundings:
    """
    Make this process find what the described one would.

    :param surroundings: of the caller; entries of its path that do not exist here are left out
    :param folder: where the caller's project is on this host; empty if it is where it was
    :return: the same as they are here
    """
    surroundings = _moved(surroundings, folder)
    if sys.path and not sys.flags.safe_path and sys.path[0] == os.getcwd():  # noqa: PTH109
        # Put there by -m. A script has its own folder there instead, and finds nothing in the working directory.
        sys.path.append(sys.path.pop(0))
    there = [entry for entry in surroundings.first if os.path.exists(entry)]  # noqa: PTH110
    sys.path[:] = there + [entry for entry in sys.path if entry not in there]
    sys.path += [entry for entry in surroundings.last if entry not in sys.path and os.path.exists(entry)]  # noqa: PTH110
    if surroundings.sources:
        sys.meta_path.append(Finder(surroundings.sources))
    for name, text in surroundings.texts.items():
        if not os.path.exists(name):  # noqa: PTH110
            # None for a time: never looked up again, so tracebacks show these lines.
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    if surroundings.argv:
        sys.argv = list(surroundings.argv)
    return surroundings


def become_main(script: str, names: Mapping[str, object]) -> ModuleType:
    """
    Put a module in the place of ``__main__`` that looks like the caller's.

    ``torch.save`` and ``multiprocessing`` look up there what says that it is of ``__main__``.

    :param script: path of the caller's script
    :param names: what its functions and classes are called
    :return: the module that was there before; who drops it drops the globals of what still runs
    """
    main = ModuleType("__main__")
    main.__dict__.update({name: value for name, value in names.items() if not name.startswith("__")})
    if script and os.path.exists(script):  # noqa: PTH110
        main.__file__ = script
    main.__dict__.setdefault("__builtins__", __builtins__)
    before, sys.modules["__main__"] = sys.modules["__main__"], main
    return before


class Finder:
    """Finds and loads modules whose source came along; the last that is asked."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = dict(sources)
        for name in sources:
            parent = name.rpartition(".")[0]
            while parent:
                self._sources.setdefault(parent, Source(f"<{parent}>", b"", True))
                parent = parent.rpartition(".")[0]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Answer the import system."""
        source = self._sources.get(fullname)
        if source is None:
            return None
        spec = importlib.machinery.ModuleSpec(
            fullname,
            self,  # type: ignore[arg-type] # all of a loader but its base class, which is slow to import
            origin=source.path,
            is_package=source.is_package,
        )
        spec.has_location = True
        return spec

    def get_source(self, fullname: str) -> str:
        """Give the text, for tracebacks too."""
        from importlib.util import decode_source

        return decode_source(self._sources[fullname].text)

    def get_code(self, fullname: str) -> CodeType:
        """Compile the text as if it were read from the caller's file."""
        source = self._sources[fullname]
        return compile(source.text, source.path, "exec", dont_inherit=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Leave it to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the text."""
        exec(self.get_code(module.__name__), module.__dict__)

    def is_package(self, fullname: str) -> bool:
        """Tell whether a module has others in it."""
        return self._sources[fullname].is_package


def _moved(surroundings: Surroundings, folder: str) -> Surroundings:
    def all_moved(paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(moved(path, surroundings.inside, folder) for path in paths)

    return replace(
        surroundings,
        first=all_moved(surroundings.first),
        last=all_moved(surroundings.last),
        argv=(*all_moved(surroundings.argv[:1]), *surroundings.argv[1:]),
        main=moved(surroundings.main, surroundings.inside, folder),
    )


def _own_sources(folders: set[str]) -> dict[str, Source]:
    found = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name in ("__main__", "__mp_main__") or name.partition(".")[0] == "lattice" or not isinstance(path, str):
            continue
        if not path.endswith(".py") or is_installed(path):
            continue
        if any(path.startswith(f"{folder}/") for folder in folders):
            try:
                found[name] = Source(path, Path(path).read_bytes(), hasattr(module, "__path__"))
            except OSError:
                continue  # gone since it was imported: the worker will say what it misses
    return found


def _typed_texts(script: str) -> dict[str, str]:
    texts = {}
    if script:
        texts[script] = "".join(linecache.getlines(script))
    for name, entry in list(linecache.cache.items())[-MOST_TEXTS:]:
        if len(entry) == 4 and not os.path.exists(name):  # noqa: PTH110
            texts[name] = "".join(entry[2])
    return texts


def is_installed(path: str) -> bool:
    """Tell whether this belongs to Python or was installed into it: every host has its own."""
    if any(part in path for part in ("/site-packages", "/dist-packages")):
        return True
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    library = f"python{sys.version_info.major}"
    return any(path.startswith((f"{prefix}/lib/{library}", f"{prefix}/lib64/{library}")) for prefix in prefixes)
