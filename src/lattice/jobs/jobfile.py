"""A job as a file: YAML whose keys are the options of ``lattice submit``; what is wrong is told with its line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lattice.jobs.options import ENV, FILE_, NO_UPLOAD, SUBMIT, WAIT
from lattice.jobs.rolefile import RoleFile, read_roles
from lattice.jobs.yamlfile import YamlFile
from lattice.options.parsing import Given

WORDS = ("script", "folder")
"""keys beside the options that hold a text"""
OPTIONS = {option.name: option for option in SUBMIT.options if option not in (FILE_, WAIT)}
KNOWN = (*OPTIONS, *WORDS, "args", "roles", "primary")


@dataclass(frozen=True, slots=True)
class JobFile:
    """What a file said."""

    given: dict[str, Given]
    """texts of options, by name"""
    words: dict[str, str]
    """script and folder"""
    arguments: tuple[str, ...]
    env: dict[str, str]
    roles: tuple[RoleFile, ...] = ()
    """the primary one first"""


def read(path: str) -> JobFile:
    """
    Read a job file.

    :param path: of the file; scripts and folders in it are meant from where it lies
    :raises UsageError: it cannot be read, or something in it is wrong: file, line, what and what is accepted
    """
    file = YamlFile(path)
    given: dict[str, Given] = {}
    words: dict[str, str] = {}
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = {}
    roles: tuple[RoleFile, ...] = ()
    primary: Any = None
    for name, key, value in file.entries(file.root):
        if name == "args":
            arguments = tuple(file.list(value))
        elif name == ENV.name:
            env = file.mapping(value)
        elif name == "roles":
            roles = read_roles(file, value)
        elif name == "primary":
            primary = value
        elif name in WORDS:
            words[name] = file.text(value)
        elif name in OPTIONS:
            given[name] = file.option(OPTIONS[name], value)
        else:
            raise file.unknown(key, name, KNOWN)
    first = "folder" if words.get("folder") else "script"
    if words.get(first) and given.get(NO_UPLOAD.name, Given("", "")).text != "1":
        words[first] = _resolved(file, words[first])
    return JobFile(given, words, arguments, env, _primary_first(file, roles, primary))


def _primary_first(file: YamlFile, roles: tuple[RoleFile, ...], primary: Any) -> tuple[RoleFile, ...]:
    if primary is None:
        return roles
    name = file.text(primary)
    if name not in [role.name for role in roles]:
        known = ", ".join(role.name for role in roles) or "none"
        raise file.error(primary, f"primary is {name!r}, which is no role; there are {known}")
    return tuple(sorted(roles, key=lambda role: role.name != name))


def _resolved(file: YamlFile, text: str) -> str:
    return text if text.startswith("s3://") else str(file.folder / text)
