"""The roles of a job file: who does what, with how many nodes, and what each needs from its place."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from lattice.jobs.job import Sidecar, Volume
from lattice.jobs.options import CPU, MEMORY, OF_ROLES, RUN_OPTIONS, SIZE
from lattice.jobs.yamlfile import YamlFile
from lattice.options.option import Option
from lattice.options.parsing import Given

NAME = re.compile(r"[a-z](?:[a-z0-9-]{0,18}[a-z0-9])?")
IF_FAILED = ("end_job", "go_on")
OPTIONS: dict[str, Option[object]] = {option.name: option for option in (SIZE, *RUN_OPTIONS, *OF_ROLES)}
KNOWN = (*OPTIONS, "script", "command", "args", "env", "group", "if_failed", "sidecars", "volumes")
OF_SIDECARS = ("image", "command", "env", "cpu", "memory")
OF_VOLUMES = ("path", "claim", "read_only")


@dataclass(slots=True)
class RoleFile:
    """What a file said about one role."""

    name: str
    where: str
    """file and line"""
    given: dict[str, Given] = field(default_factory=dict)
    """texts of options, by name"""
    script: str = ""
    command: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    group: str = ""
    if_failed: str = IF_FAILED[0]
    sidecars: tuple[Sidecar, ...] = ()
    volumes: tuple[Volume, ...] = ()


def read_roles(file: YamlFile, node: Any) -> tuple[RoleFile, ...]:
    """
    Read the value of ``roles``.

    :raises UsageError: something in it is wrong: file, line, what and what is accepted
    """
    roles = [_role(file, key, value) for _, key, value in file.entries(node, "ROLE: lines are wanted here")]
    if not roles:
        raise file.error(node, "roles has no role")
    return tuple(roles)


def _role(file: YamlFile, key: Any, node: Any) -> RoleFile:
    role = RoleFile(_name(file, key, "a role"), f"{file.path}:{key.start_mark.line + 1}")
    for name, inner, value in file.entries(node):
        if name in OPTIONS:
            role.given[name] = file.option(OPTIONS[name], value)
            continue
        match name:
            case "script":
                role.script = file.text(value)
            case "command":
                role.command = tuple(file.list(value))
            case "args":
                role.arguments = tuple(file.list(value))
            case "env":
                role.env = file.mapping(value)
            case "group":
                role.group = _name(file, value, "a group")
            case "if_failed":
                role.if_failed = _one_of(file, value, "if_failed", IF_FAILED)
            case "sidecars":
                role.sidecars = tuple(_sidecar(file, one, inside) for _, one, inside in file.entries(value))
            case "volumes":
                role.volumes = tuple(_volume(file, one, inside) for _, one, inside in file.entries(value))
            case _:
                raise file.unknown(inner, name, KNOWN)
    if bool(role.script) == bool(role.command):
        raise file.error(key, f"role {role.name!r} needs either script or command: what its workers run")
    return role


def _sidecar(file: YamlFile, key: Any, node: Any) -> Sidecar:
    found: dict[str, Any] = {}
    for name, inner, value in file.entries(node):
        match name:
            case "command":
                found[name] = tuple(file.list(value))
            case "env":
                found["environment"] = tuple(sorted(file.mapping(value).items()))
            case "image":
                found[name] = file.text(value)
            case "cpu" | "memory":
                found[name] = file.option(CPU if name == "cpu" else MEMORY, value).text
            case _:
                raise file.unknown(inner, name, OF_SIDECARS)
    if not found.get("image"):
        raise file.error(key, f"sidecar {file.word(key)!r} has no image")
    return Sidecar(_name(file, key, "a sidecar"), **found)


def _volume(file: YamlFile, key: Any, node: Any) -> Volume:
    found: dict[str, Any] = {}
    for name, inner, value in file.entries(node):
        if name not in OF_VOLUMES:
            raise file.unknown(inner, name, OF_VOLUMES)
        found[name] = file.text(value) == "1" if name == "read_only" else file.text(value)
    if not str(found.get("path", "")).startswith("/"):
        raise file.error(key, f"volume {file.word(key)!r} needs a path that begins with /: where it is to be found")
    return Volume(_name(file, key, "a volume"), **found)


def _name(file: YamlFile, node: Any, what: str) -> str:
    name = file.word(node)
    if not NAME.fullmatch(name):
        raise file.error(
            node, f"{what} is called {name!r}; accepted: 1 to 20 of a-z, 0-9 and -, beginning with a letter"
        )
    return name


def _one_of(file: YamlFile, node: Any, name: str, accepted: tuple[str, ...]) -> str:
    text = file.text(node)
    if text not in accepted:
        raise file.error(node, f"{name} is {text!r}; accepted: {' or '.join(accepted)}")
    return text
