"""Where things of the caller's project are on a host that has it in another folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any


def places(root: str, paths: Iterable[str]) -> dict[str, str]:
    """
    Pick the paths that are in the project.

    :param root: its folder
    :param paths: absolute, of the caller
    :return: where in the project each of them is; the folder around it too, if the project itself is a package
    """
    real = os.path.realpath(root)
    is_package = os.path.exists(f"{real}/__init__.py")  # noqa: PTH110
    found = {}
    for path in paths:
        place = os.path.relpath(os.path.realpath(path), real)
        if (place != ".." and not place.startswith("../")) or (place == ".." and is_package):
            found[path] = place
    return found


def moved(path: str, inside: Mapping[str, str], folder: str) -> str:
    """
    Give a path of the caller as it is on this host.

    :param path: of the caller
    :param inside: see :func:`places`
    :param folder: where the project is on this host; empty if it is where it was
    """
    return os.path.normpath(f"{folder}/{inside[path]}") if folder and path in inside else path


def moved_settings(settings: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """
    Give the settings of a run as they are meant on this host.

    :param settings: of the launcher: its working directory, its variables, and which of their paths are inside
    :param folder: where the project is on this host; empty if it is where it was
    """
    inside: Mapping[str, str] = settings["inside"]
    variables = dict(settings["variables"])
    if variables.get("PYTHONPATH"):
        entries = variables["PYTHONPATH"].split(os.pathsep)
        variables["PYTHONPATH"] = os.pathsep.join(moved(entry, inside, folder) for entry in entries)
    return {**settings, "cwd": moved(settings["cwd"], inside, folder), "variables": variables}
