"""Exceptions that travel: any of them comes out as it went in, whatever its class made of its arguments."""

from __future__ import annotations

import builtins
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
    chain = (error.__cause__, error.__context__, error.__suppress_context__)
    return make, arguments, (state, *chain), None, None, restore


def restore(error: BaseException, state: tuple[Any, ...]) -> None:
    """Give an exception back what it had besides its arguments."""
    attributes, cause, context, suppress = state
    if attributes:
        error.__setstate__(attributes)
    error.__cause__, error.__context__, error.__suppress_context__ = cause, context, suppress


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
