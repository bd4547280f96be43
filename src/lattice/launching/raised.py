"""Exceptions that travel: any of them comes out as it went in, whatever its class made of its arguments."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from typing import Any


class StandIn(Exception):
    """
    What is raised for an exception whose own class cannot be had here.

    Its class is called like the original and is derived from the same built-in exception.
    """

    text = ""

    def __str__(self) -> str:
        return self.text


def reduce_exception(error: BaseException) -> tuple[Any, ...]:
    """
    Tell a pickler how to take an exception apart, with its attributes, notes, cause and context.

    Python would call the class with what it passed on to ``Exception``: many classes want other arguments.
    """
    make: Any
    state: Any
    try:
        make, arguments, state = (*error.__reduce_ex__(5)[:3], None)[:3]
        made = make(*arguments)
        faithful = type(made) is type(error) and str(made) == str(error)
    except Exception:
        faithful = False
    if not faithful:
        arguments, state = parts(error)
        make, arguments = bare, (type(error), arguments)
    chain = (error.__cause__, error.__context__, error.__suppress_context__, _slots(error))
    return make, arguments, (state, *chain), None, None, restore


def restore(error: BaseException, state: tuple[Any, ...]) -> None:
    """Give an exception back what it had besides its arguments."""
    attributes, cause, context, suppress, slots = state
    if isinstance(attributes, dict) and type(error).__setstate__ is BaseException.__setstate__:
        slots = {**attributes, **slots}
    elif attributes:
        error.__setstate__(attributes)
    links = {"__cause__": cause, "__context__": context, "__suppress_context__": suppress}
    for name, value in {**slots, **links}.items():
        assign(error, name, value)


def assign(error: BaseException, name: str, value: object) -> None:
    """Set an attribute, though the class of the exception may refuse that, as a frozen dataclass does."""
    BaseException.__setattr__(error, name, value)


def note(error: BaseException, text: str) -> None:
    """Add a note, whatever the class of the exception makes of notes."""
    notes = getattr(error, "__notes__", None)
    assign(error, "__notes__", [*(notes if isinstance(notes, list) else ()), text])


def together(errors: Sequence[BaseException]) -> BaseException:
    """
    Give the first of some exceptions, with all of them as a group in ``lattice_failures``.

    :param errors: at least one, the cause first
    """
    first, *others = errors
    assign(first, "lattice_failures", BaseExceptionGroup(f"{len(errors)} of the workers failed", list(errors)))
    if others:
        note(first, f"{len(others)} more of the workers failed: see lattice_failures of this exception")
    return first


def _slots(error: BaseException) -> dict[str, object]:
    """Collect what lies in slots: Python leaves that behind."""
    names = {name for cls in type(error).__mro__ for name in _names(vars(cls).get("__slots__", ()))}
    return {name: getattr(error, name) for name in names if hasattr(error, name)}


def _names(slots: object) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else tuple(slots)  # type: ignore[arg-type]


def parts(error: BaseException) -> tuple[tuple[Any, ...], Any]:
    """Give arguments and attributes as the built-in class beneath knows them: OSError hides some of its arguments."""
    reduced = built_in(type(error)).__reduce__(error)
    assert isinstance(reduced, tuple)
    return reduced[1], reduced[2] if len(reduced) > 2 else None


def built_in(cls: type[BaseException]) -> type[BaseException]:
    """Find the built-in class that an exception is derived from."""
    return next(one for one in cls.__mro__ if one.__module__ == "builtins")


def bare(cls: type[BaseException], arguments: tuple[Any, ...]) -> BaseException:
    """Make an exception without calling anything that its class defines in Python."""
    base = built_in(cls)
    error: BaseException = base.__new__(cls, *arguments)
    base.__init__(error, *arguments)
    return error


def stand_in(name: str, bases: tuple[str, ...], text: str) -> Exception:
    """
    Make a stand-in for an exception whose class cannot be had.

    :param name: of the class, with its module
    :param bases: names of the built-in classes that it is derived from, the nearest first
    :param text: what ``str`` gave for it
    """
    module, _, short = name.rpartition(".")
    nearest = getattr(builtins, next(iter(bases), "Exception"), Exception)
    for base in (nearest, Exception):
        try:
            cls = type(short, (StandIn, base) if base is not Exception else (StandIn,), {"__module__": module})
            made = bare(cls, (text,))
        except (TypeError, StopIteration):
            continue  # a base that wants more than a text
        assert isinstance(made, StandIn)
        made.text = text
        return made
    raise AssertionError("a stand-in can always be made")
