"""What the workers of a launch are given to do, and how it gets into a parcel and out again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lattice.errors import NotPickled
from lattice.launching import parcel
from lattice.launching.parcel import Parcel
from lattice.launching.surroundings import Surroundings, become_main, enter, observe
from lattice.launching.variables import PROJECT

DEFAULT_TIMEOUT = 600.0


@dataclass(frozen=True, slots=True)
class Task:
    """A call, and the process group around it."""

    func: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    backend: str | None = "auto"
    """as torch calls them; None for no process group"""
    timeout: float = DEFAULT_TIMEOUT
    """seconds, of the process group"""


def pack(task: Task, *, sources: bool = True, project: Path | None = None, limit: int | None = None) -> Parcel:
    """
    Make the parcel that every worker of a launch gets.

    :param task: what they will do
    :param sources: whether to take along the source of modules beside the caller's script
    :param project: the folder that is sent to hosts
    :param limit: the most bytes; what there is room for unless given
    :raises NotPickled: names the argument that cannot be pickled
    :raises TooLarge: it is beyond the limit
    """
    what = f"{name_of(task.func)} with its arguments"
    # The order counts: a pickle is a program, and the function can only be found once its surroundings were entered.
    content = (
        _Entered(observe(sources=sources, project=project)),
        task.func,
        task.args,
        dict(task.kwargs),
        task.backend,
        task.timeout,
    )
    try:
        return parcel.dump(content, what, limit=limit)
    except NotPickled as error:
        raise NotPickled(_culprit(task) or str(error)) from error.__cause__


def unpack(image: memoryview) -> Task:
    """
    Take the task out of its parcel: a worker's first step, which changes its ``sys.path`` and ``__main__``.

    :param image: of the parcel
    """
    surroundings, func, args, kwargs, backend, timeout = parcel.load(image)
    names = _names_of_main(func, surroundings.main)
    _kept.append(become_main(surroundings.main, names))
    return Task(func, args, kwargs, backend, timeout)


_kept: list[object] = []


class _Entered:
    """Surroundings that are entered as soon as they are unpickled."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings

    def __reduce__(self) -> tuple[Any, ...]:
        return _enter, (self._surroundings,)


def _enter(surroundings: Surroundings) -> Surroundings:
    return enter(surroundings, os.environ.pop(PROJECT, ""))


def name_of(func: object) -> str:
    """Name a function, or what is called like one, for people."""
    if isinstance(func, partial):
        return f"partial of {name_of(func.func)}"
    name = getattr(func, "__qualname__", None) or type(func).__qualname__
    return f"{getattr(func, '__module__', None) or type(func).__module__}.{name}"


def _culprit(task: Task) -> str:
    parts: dict[str, object] = {f"the function {name_of(task.func)}": task.func}
    parts |= {f"argument {number} of {name_of(task.func)}": value for number, value in enumerate(task.args, 1)}
    parts |= {f"argument {name}= of {name_of(task.func)}": value for name, value in task.kwargs.items()}
    for what, value in parts.items():
        try:
            parcel.dump(value, f"{what} ({type(value).__module__}.{type(value).__qualname__})")
        except NotPickled as error:
            return f"{error}. Make it in the function instead, or send what it is made from."
    return ""


def _names_of_main(func: object, script: str) -> dict[str, object]:
    """
    Collect what arrived of the caller's ``__main__``: the globals that its functions share, and its classes.

    :param func: what was sent
    :param script: where the caller's script is on this host: what its functions know as ``__file__``
    """
    names: dict[str, object] = {}
    while isinstance(func, partial):
        func = func.func
    func = getattr(func, "__func__", func)
    if getattr(func, "__module__", None) == "__main__" and hasattr(func, "__name__"):
        names[func.__name__] = func
    functions = [func]
    # Classes that no function names, such as those of arguments.
    cloudpickle = sys.modules.get("cloudpickle.cloudpickle")
    for cls in list(getattr(cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", ())):
        if cls.__module__ == "__main__":
            functions += vars(cls).values()
            if "." not in cls.__qualname__:
                names[cls.__name__] = cls
    while functions:
        function = functions.pop()
        shared = getattr(function, "__globals__", {})
        if shared.get("__name__") == "__main__":  # not those of a decorator
            if "__file__" in shared:
                shared["__file__"] = script
            names = {**shared, **names}
        if hasattr(function, "__wrapped__"):
            functions.append(function.__wrapped__)
    return names
