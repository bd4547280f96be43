"""From ``module:function`` or ``file.py:function`` to the function itself, or to why it cannot be had."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType, TracebackType
from typing import Any

from lattice.errors import LatticeError, UsageError
from lattice.options.parsing import guess

FORM = "write MODULE:FUNCTION or FILE.py:FUNCTION, such as train:main"


class NotImported(LatticeError):
    """The user's module raised something when it was imported: its traceback has been made ready to be shown."""

    def __init__(self, message: str, cause: BaseException) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True, slots=True)
class Target:
    """Where a function is."""

    given: str
    module: str
    """its name, by which workers import it too"""
    file: Path | None
    """if it was named by its file"""
    names: tuple[str, ...]
    """the function, after the classes that it is in"""


def parse_target(given: str) -> Target:
    """
    Take a target apart; nothing is imported.

    :param given: what the user wrote
    :raises UsageError: it has no such form, or there is no such file
    """
    place, colon, names = given.rpartition(":")
    if not colon or not place or not all(name.isidentifier() for name in names.split(".")):
        raise UsageError(f"{given!r} names no function: {FORM}")
    if not place.endswith(".py") and "/" not in place:
        if place.startswith(".") or not all(part.isidentifier() for part in place.split(".")):
            raise UsageError(f"{given!r}: {place!r} is no name of a module: {FORM}")
        return Target(given, place, None, tuple(names.split(".")))
    file = Path(place)
    try:
        if not file.is_file():
            other = f"; did you mean {place}.py:{names}?" if file.with_name(f"{file.name}.py").is_file() else ""
            raise UsageError(f"{given!r}: there is no file {place!r}{other or f' in {Path.cwd()}'}")
    except OSError as error:  # it may not be looked at, or is no name that a file can have
        raise UsageError(f"{given!r}: {error.strerror}") from None
    if file.suffix != ".py" or "." in file.stem:
        raise UsageError(f"{given!r}: workers import the file as a module, so name it NAME.py, without further dots")
    return Target(given, file.stem, file.resolve(), tuple(names.split(".")))


def find(target: Target) -> Callable[..., Any]:
    """
    Import the module, as Python would from here, and find the function in it.

    :param target: a file's own folder comes first in the module search path, for a module the working directory
    :raises UsageError: there is no such module or function, or it cannot be called
    :raises NotImported: the module failed
    """
    folder = str(target.file.parent if target.file is not None else Path.cwd())
    if sys.path and sys.path[0] in ("", str(Path(sys.argv[0]).resolve().parent)):
        del sys.path[0]  # the folder of the lattice command
    sys.path.insert(0, folder)
    found: Any = _import(target)
    owner: Any = None
    for depth, name in enumerate(target.names):
        owner, missing = found, object()
        found = getattr(owner, name, missing)
        if found is missing:
            raise UsageError(f"{_where(target, depth)} has no {name!r}{_alternatives(name, owner)}")
    if not callable(found):
        raise UsageError(f"{target.given} is a value of type {type(found).__qualname__}: it cannot be called")
    if inspect.iscoroutinefunction(found):
        raise UsageError(f"{target.given} is asynchronous: name a function that calls asyncio.run itself")
    if isinstance(owner, type) and isinstance(inspect.getattr_static(owner, target.names[-1]), FunctionType):
        return OnNew(owner, target.names[-1])
    return found  # type: ignore[no-any-return]


class OnNew:
    """A method of an object that each worker makes for itself."""

    def __init__(self, cls: type, name: str) -> None:
        needed = [one.name for one in inspect.signature(cls).parameters.values() if one.default is one.empty]
        if needed:
            raise UsageError(
                f"{cls.__qualname__} cannot be made without {', '.join(needed)}, and {name} is for objects of it: "
                "make it a classmethod, or name a function that makes one"
            )
        self._cls, self._name = cls, name
        self.__qualname__ = f"{cls.__qualname__}.{name}"

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Make one, and call the method."""
        return getattr(self._cls(), self._name)(*args, **kwargs)

    @property
    def __wrapped__(self) -> Callable[..., object]:
        return getattr(self._cls, self._name)  # type: ignore[no-any-return]

    @property
    def __signature__(self) -> inspect.Signature:
        whole = inspect.signature(self.__wrapped__)
        return whole.replace(parameters=tuple(whole.parameters.values())[1:])


def _import(target: Target) -> ModuleType:
    try:
        module = import_module(target.module)
    except ModuleNotFoundError as error:
        if not _shorten(error) and f"{target.module}.".startswith(f"{error.name}."):
            raise UsageError(f"{target.given!r}: {error}{_near(target.module)} (looked for in {sys.path[0]})") from None
        raise _failed(target, error) from error
    except (Exception, SystemExit) as error:
        _shorten(error)
        raise _failed(target, error) from error
    if target.file is not None and Path(getattr(module, "__file__", None) or "").resolve() != target.file:
        where = getattr(module, "__file__", None) or "Python itself"
        raise UsageError(f"{target.given!r}: the name {target.module} belongs to {where}; give the file another one")
    return module


def _shorten(error: BaseException) -> bool:
    """Leave out the frames by which the module was reached; tell whether there are others."""
    kept: TracebackType | None = error.__traceback__
    while (
        kept is not None
        and (name := kept.tb_frame.f_code.co_filename)
        and (name == __file__ or name == import_module.__code__.co_filename or name.startswith("<frozen importlib"))
    ):
        kept = kept.tb_next
    error.__traceback__ = kept
    return kept is not None


def _failed(target: Target, error: BaseException) -> NotImported:
    what = target.file.name if target.file is not None else target.module
    if isinstance(error, SystemExit):
        advice = "it ended the program; keep what is not for importing under if __name__ == '__main__':"
    elif isinstance(error, ImportError) and "no known parent package" in str(error):
        advice = f"it is part of a package; name it by its module, as in PACKAGE.{target.module}:{target.names[-1]}"
    else:
        advice = "see above"
    return NotImported(f"{what} could not be imported: {advice}", error)


def _near(module: str) -> str:
    """Ask whether a module beside the working directory was meant."""
    if "." in module:
        return ""
    here = [path.stem for path in Path().glob("*.py")] + [path.parent.name for path in Path().glob("*/__init__.py")]
    return guess(module, here)


def _alternatives(name: str, owner: object) -> str:
    public = [other for other in dir(owner) if not other.startswith("_") and callable(getattr(owner, other, None))]
    home = owner.__name__ if isinstance(owner, ModuleType) else getattr(owner, "__module__", "")
    own = [other for other in public if getattr(getattr(owner, other), "__module__", "") == home]
    return guess(name, public) or (f"; it has {', '.join(own[:10])}" if own else "")


def _where(target: Target, depth: int) -> str:
    place = target.given.rpartition(":")[0]
    return f"{place}:{'.'.join(target.names[:depth])}" if depth else place
