"""The settings of a launch, whatever is done with them: what type checkers know, and which numbers can be meant."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from logging import Handler
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, TypeVar, get_type_hints

from lattice.environments import FRAMEWORKS
from lattice.launching.hosts import WrongArgument

Hostnames = list[str] | Literal["auto", "slurm"]
WorkersPerHost = int | list[int] | Literal["auto", "cpu", "gpu", "slurm"]
Backend = Literal["nccl", "gloo", "mpi", "ucc", "auto"] | None
Handlers = list[Handler] | Literal["auto"] | None
Progress = Literal["auto"] | bool


class Settings(TypedDict, total=False):
    """The fields of :class:`lattice.Launcher`, once more: Python has no way to derive the one from the other."""

    hostnames: Hostnames
    workers_per_host: WorkersPerHost
    ssh_config_file: str | Path | None
    backend: Backend
    timeout: int
    default_env_vars: tuple[str, ...]
    extra_env_vars: tuple[str, ...]
    env_file: str | Path | None
    max_restarts: int
    min_hosts: int | None
    framework: str
    run_timeout: float | None
    shutdown_timeout: float
    preload: str
    sync: str | Path | None
    python: str | None
    log_handlers: Handlers
    progress: Progress


LEAST = {"timeout": 1, "max_restarts": 0, "run_timeout": 0, "shutdown_timeout": 0}


def check(settings: Mapping[str, Any]) -> None:
    """
    Refuse what cannot be meant.

    :param settings: all of them, by name
    :raises WrongArgument: names the setting
    """
    for name, least in LEAST.items():
        value = settings[name]
        if value is None and name == "run_timeout":
            continue
        # The comparison is also false for nan.
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
            raise WrongArgument(f"{name} is {value!r}: give a number from {least}.")
    if settings["progress"] not in ("auto", True, False):
        raise WrongArgument(f"progress is {settings['progress']!r}: give 'auto', True or False.")
    if settings["framework"] not in FRAMEWORKS:
        raise WrongArgument(f"framework is {settings['framework']!r}: give one of {', '.join(FRAMEWORKS)}.")
    for name in ("default_env_vars", "extra_env_vars"):
        if isinstance(settings[name], str):
            raise WrongArgument(f"{name} is {settings[name]!r}: give a list of patterns, such as ('HF_*', 'TZ').")
    handlers = settings["log_handlers"]
    if handlers not in ("auto", None) and (
        isinstance(handlers, str) or not all(isinstance(one, Handler) for one in handlers)
    ):
        raise WrongArgument(f"log_handlers is {handlers!r}: give 'auto', None, or a list of logging.Handler.")


MARK = "only in Python"
T = TypeVar("T")
if TYPE_CHECKING:
    OnlyInPython = Annotated[T, None]
else:

    class OnlyInPython:
        """Marks a field that cannot be written on a command line."""

        def __class_getitem__(cls, annotation: Any) -> Any:
            # Annotations are evaluated when somebody asks for them: tyro, if it does, has been imported by then.
            tyro = sys.modules.get("tyro")
            marked = Annotated[annotation, MARK]
            return marked if tyro is None else tyro.conf.Suppress[marked]


def only_in_python(cls: type) -> frozenset[str]:
    """Name the fields that cannot be written on a command line."""
    hints = get_type_hints(cls, include_extras=True)
    return frozenset(name for name, hint in hints.items() if MARK in getattr(hint, "__metadata__", ()))
