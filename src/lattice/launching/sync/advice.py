"""Tells a caller whose module is missing on a host what would bring it there."""

from __future__ import annotations

from importlib.machinery import PathFinder
from pathlib import Path

from lattice.launching.raised import note
from lattice.launching.surroundings import is_installed


def advise(error: BaseException, host: str, *, synced: bool) -> BaseException:
    """
    Add a note to an exception of a worker that missed a module of the caller's own.

    :param error: what the worker raised
    :param host: its host
    :param synced: whether the project was sent there
    """
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if name:
        path = own_module(name.partition(".")[0])
        if path and synced:
            note(error, f"{path} was not sent to {host}: is it in the folder that sync names, and not ignored?")
        elif path:
            note(error, f"{path} is not on {host}: give sync='auto' to have the project's folder on every host.")
    return error


def own_module(name: str) -> str:
    """Tell where a module is that is not installed, without importing it; nothing if there is no such one."""
    try:
        spec = PathFinder.find_spec(name)
    except (ImportError, ValueError, OSError):
        return ""
    if spec is None:
        return ""
    found = spec.origin if spec.has_location else next(iter(spec.submodule_search_locations or ()), None)
    return str(Path(found)) if found and not is_installed(found) else ""
