"""A job as a value: what to run, on how many nodes, where. Nothing here touches the world."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lattice.core.spec import NodeRange

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
"""what every place takes as part of a name: host names, folders, groups of instances"""
EACH = "each"
"""the group of a role whose nodes do not form one run: each is one by itself, and restarts nobody else"""


@dataclass(frozen=True, slots=True)
class Code:
    """What the workers run."""

    source: str
    """a script, a folder, an archive at s3://, or with ``upload`` false a path on the nodes"""
    script: str = ""
    """the script in it, if the source is a folder or an archive"""
    upload: bool = True

    def __str__(self) -> str:
        return f"{self.source} {self.script}".rstrip()


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A program beside the agent of a node, which reaches it on localhost; only places with containers have it."""

    name: str
    image: str
    command: tuple[str, ...] = ()
    """in place of what the image runs"""
    environment: tuple[tuple[str, str], ...] = ()
    cpu: str = ""
    memory: str = ""


@dataclass(frozen=True, slots=True)
class Volume:
    """A folder of the containers that is not of their image."""

    name: str
    path: str
    claim: str = ""
    """name of a persistent volume claim; empty for an empty folder that goes with the node"""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Role:
    """Nodes of a job that do the same."""

    name: str
    size: NodeRange
    """how few nodes it can do with, and how many it gets"""
    script: str = ""
    """in the job's code"""
    command: tuple[str, ...] = ()
    """any other program, in place of a script"""
    arguments: tuple[str, ...] = ()
    run_options: tuple[tuple[str, str], ...] = ()
    """options of ``lattice run``, by name, as text"""
    environment: tuple[tuple[str, str], ...] = ()
    place_options: Mapping[str, str] = field(default_factory=dict)
    """what only some places know, such as image, cpu, memory, gpus; by name, as text"""
    group: str = ""
    """roles of the same group are one run; empty for one of its own, :data:`EACH` for each node by itself"""
    if_failed: str = "end_job"
    """what the end of its run by a failure means for the job: end_job, or go_on"""
    sidecars: tuple[Sidecar, ...] = ()
    volumes: tuple[Volume, ...] = ()

    @staticmethod
    def load(fields: Mapping[str, Any]) -> Role:
        """Make it again from JSON."""
        return Role(
            **{
                **fields,
                "size": _range(fields["size"]),
                "command": tuple(fields["command"]),
                "arguments": tuple(fields["arguments"]),
                "run_options": _pairs(fields["run_options"]),
                "environment": _pairs(fields["environment"]),
                "sidecars": tuple(
                    Sidecar(**{**one, "command": tuple(one["command"]), "environment": _pairs(one["environment"])})
                    for one in fields["sidecars"]
                ),
                "volumes": tuple(Volume(**one) for one in fields["volumes"]),
            }
        )


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that a submission needs to know."""

    name: str
    place: str
    """where it runs: local, ssh, ..."""
    size: NodeRange
    """how few nodes it can run with, and how many it gets"""
    code: Code
    arguments: tuple[str, ...] = ()
    run_options: tuple[tuple[str, str], ...] = ()
    """options of ``lattice run``, by name, as text"""
    environment: tuple[tuple[str, str], ...] = ()
    """variables of the workers"""
    place_options: Mapping[str, str] = field(default_factory=dict)
    """options that only this place has, by name, as text"""
    roles: tuple[Role, ...] = ()
    """who does what, the primary one first: its end is the job's; none if all nodes do the same"""

    def digest(self) -> str:
        """Tell two jobs apart: equal for equal jobs."""
        return hashlib.sha256(json.dumps(self.dump(), sort_keys=True).encode()).hexdigest()[:16]

    def dump(self) -> dict[str, Any]:
        """Give it as JSON can hold it."""
        return asdict(self)

    @staticmethod
    def load(fields: Mapping[str, Any]) -> Job:
        """Make it again from what :meth:`dump` gave."""
        return Job(
            name=fields["name"],
            place=fields["place"],
            size=_range(fields["size"]),
            code=Code(**fields["code"]),
            arguments=tuple(fields["arguments"]),
            run_options=_pairs(fields["run_options"]),
            environment=_pairs(fields["environment"]),
            place_options=dict(fields["place_options"]),
            roles=tuple(Role.load(one) for one in fields.get("roles", ())),
        )


def _range(fields: Mapping[str, int]) -> NodeRange:
    return NodeRange(fields["minimum"], fields["maximum"])


def _pairs(fields: Iterable[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, text) for name, text in fields)
