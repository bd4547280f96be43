"""What agents tell each other through the store: versioned JSON, never pickle, and the keys it lies under."""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import field
from typing import Any, ClassVar, Self

from lattice.core.dataclass import dataclass
from lattice.core.spec import NodeRange
from lattice.core.topology import RosterEntry

VERSION = 1


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one run."""

    run_id: str
    root: str = field(init=False)
    """the prefix of everything that belongs to the run"""
    control: str = field(init=False)
    """the prefix that every agent watches"""
    run: str = field(init=False)
    """the run record"""
    leader: str = field(init=False)
    """whoever creates it leads"""
    round: str = field(init=False)
    """the current round"""
    outcome: str = field(init=False)
    """the run's end"""
    nodes: str = field(init=False)
    """the prefix of the node records"""

    def __post_init__(self) -> None:
        root = "/lattice/" + self.run_id.replace("%", "%25").replace("/", "%2F") + "/"
        places = {"root": "", "control": "control/", "nodes": "nodes/"}
        places |= {name: f"control/{name}" for name in ("run", "leader", "round", "outcome")}
        for name, place in places.items():
            object.__setattr__(self, name, root + place)

    def groups(self, number: int | None = None) -> str:
        """
        Give the prefix of what workers' process groups keep in the store, of one round or of all.

        Not below the root, which the leader watches: workers may write a lot. No id is spelled with ``%c``.
        """
        every = self.root.replace("/lattice/", "/lattice/%c10d/", 1)
        return every if number is None else f"{every}{number}/"

    def node(self, incarnation: str) -> str:
        """Give the key of one agent."""
        return f"{self.nodes}{incarnation}"

    def reports(self, number: int | None = None) -> str:
        """Give the prefix of the reports of one round, or of all."""
        return f"{self.root}reports/" if number is None else f"{self.root}reports/{number}/"

    def report(self, number: int, incarnation: str) -> str:
        """Give the key of one agent's report on one round."""
        return f"{self.reports(number)}{incarnation}"

    def lost(self, number: int | None = None) -> str:
        """Give the key that names further losses of one round, or the prefix of all such keys."""
        return f"{self.root}lost/" if number is None else f"{self.root}lost/{number}"

    def rosters(self, number: int | None = None) -> str:
        """Give the prefix of the roster parts of one round, or of all."""
        return f"{self.root}rosters/" if number is None else f"{self.root}rosters/{number}/"

    def roster(self, number: int, part: int) -> str:
        """Give the key of one roster part."""
        return f"{self.rosters(number)}{part}"


def any_run(nodes: NodeRange) -> str:
    """Give what stands for a run's uuid in the record of a node that comes: whatever run it finds, if that agrees."""
    return f"any {nodes}"


class WrongRecordError(ValueError):
    """A value in the store that this version of Lattice cannot read."""


class Record:
    """A value that is stored as JSON with a version."""

    __slots__ = ()

    def encode(self) -> bytes:
        """Give the bytes to store."""
        return _ENCODER.encode({"v": VERSION, **_fields(self)}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """
        Read stored bytes. Fields of a newer Lattice are ignored, so that versions may mix while nodes are replaced.

        :raises WrongRecordError: if it isn't such a record
        """
        try:
            fields = json.loads(data)
            if fields.pop("v") != VERSION:
                raise ValueError("version")
            known = cls.__slots__
            if tuple(fields) != known:
                fields = {name: value for name, value in fields.items() if name in known}
            return cls._build(fields)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise WrongRecordError(f"not a {cls.__name__}: {data[:80]!r}") from error

    @classmethod
    def _build(cls, fields: dict[str, Any]) -> Self:
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class RunRecord(Record):
    """Written by the first agent; the others must agree with it."""

    uuid: str
    minimum: int
    maximum: int
    max_restarts: int
    lease: int
    refill: bool = False
    """whether it was written anew after the store lost everything: members may still come back with a round"""


@dataclass(frozen=True, slots=True)
class LeaderRecord(Record):
    """Who leads; bound to its node lease, guarded by its create revision."""

    incarnation: str
    greeted: bool = True
    """whether it takes :func:`any_run` for its own run"""

    @classmethod
    def _build(cls, fields: dict[str, Any]) -> Self:
        return cls(**{"greeted": False, **fields})  # agents that did not know of it did not say so either


@dataclass(frozen=True, slots=True)
class RoundRecord(Record):
    """The current round, without its roster."""

    SEALED: ClassVar[str] = "sealed"
    STOPPING: ClassVar[str] = "stopping"

    number: int
    phase: str
    restarts: int
    reason: str
    """why this round began (sealed) or ends (stopping), for people"""
    master_address: str
    master_port: int
    nodes: int
    world: int
    parts: tuple[str, ...]
    """where each roster part begins; parts are in order of incarnation"""
    lost: tuple[str, ...] = ()
    """stopping only: members that were lost or leaving when it was written; see also LostRecord"""
    planned: bool = False
    """stopping only: nothing went wrong, newcomers are let in; failures after that are only its echo"""
    rebinds: int = 0
    """rounds in a row that ended because the master port was taken"""
    follows: int = 0
    """sealed only: whoever was in that round has the same place in this one, and need not read it; 0 for none"""
    moved: tuple[int, ...] = ()
    """except these: group ranks of that round whose nodes have another place in this one, or none"""
    arrivals: tuple[tuple[int, int, int], ...] = ()
    """sealed only: the places of the others by when they came, as in :func:`lattice.core.topology.arrivals`"""
    kind: str = ""
    """sealed only: what ended the round before, in a word"""
    manner: str = ""
    """stopping only: how workers are stopped, as in :mod:`lattice.core.supervision`"""

    @classmethod
    def _build(cls, fields: dict[str, Any]) -> Self:
        rows = [(revision, rank, count) for revision, rank, count in fields.get("arrivals", ())]
        fields["parts"], fields["arrivals"] = tuple(fields["parts"]), tuple(rows)
        for name in ("lost", "moved"):
            fields[name] = tuple(fields.get(name, ()))
        return cls(**fields)

    def part_of(self, incarnation: str) -> int:
        """Tell which roster part an agent is in, if it is in the round at all."""
        return max(bisect_right(self.parts, incarnation) - 1, 0)


@dataclass(frozen=True, slots=True)
class LostRecord(Record):
    """Members lost or leaving since a round is stopping: for the next leader, so the others are not told each time."""

    incarnations: tuple[str, ...]

    @classmethod
    def _build(cls, fields: dict[str, Any]) -> Self:
        return cls(tuple(fields["incarnations"]))


@dataclass(frozen=True, slots=True)
class FailureRecord(Record):
    """One failed worker."""

    rank: int
    local_rank: int
    host: str
    pid: int
    code: int
    """exit code; 0 if a signal ended it"""
    signal: int = 0
    message: str = ""
    """the traceback, or the end of what it wrote to stderr"""
    kind: str = "worker"
    """
    worker; connection (it lost a peer); port (the master port was taken); hang (it lives, but does not get on);
    memory (it was killed because memory ran out)
    """
    hint: str = ""
    """what the user may want to try"""
    log: str = ""
    """where its output lies on its host"""

    @property
    def status(self) -> int:
        """Give the exit code that the agent ends with."""
        return 128 + self.signal if self.signal else self.code


@dataclass(frozen=True, slots=True)
class PaceRecord(Record):
    """How fast a worker was, by its heartbeats."""

    rank: int
    host: str
    step: float
    """mean seconds between two heartbeats"""
    longest: float
    """most seconds between two heartbeats"""


@dataclass(frozen=True, slots=True)
class ReportRecord(Record):
    """How a round ended on one node: done, or failed."""

    incarnation: str
    failure: FailureRecord | None = None
    pace: PaceRecord | None = None
    """of the slowest worker, if it is done and gave heartbeats"""

    @property
    def done(self) -> bool:
        """Tell whether all workers of the node exited 0."""
        return self.failure is None

    @classmethod
    def _build(cls, fields: dict[str, Any]) -> Self:
        failure, pace = fields.get("failure"), fields.get("pace")
        return cls(
            fields["incarnation"], FailureRecord(**failure) if failure else None, PaceRecord(**pace) if pace else None
        )


@dataclass(frozen=True, slots=True)
class OutcomeRecord(Record):
    """How the run ended."""

    uuid: str
    succeeded: bool
    number: int
    restarts: int
    status: int
    """the exit code of every agent"""
    reason: str = ""
    cause: FailureRecord | None = None
    others: tuple[FailureRecord, ...] = ()
    slowest: PaceRecord | None = None
    """of all workers, if they gave heartbeats"""
    typical: float = 0.0
    """the pace of the slowest worker of a typical node"""

    @classmethod
    def _build(cls, fields: dict[str, Any]) -> Self:
        cause, slowest = fields.get("cause"), fields.get("slowest")
        others = tuple(FailureRecord(**other) for other in fields.get("others", ()))
        built = {
            "cause": FailureRecord(**cause) if cause else None,
            "others": others,
            "slowest": PaceRecord(**slowest) if slowest else None,
        }
        return cls(**{**fields, **built})


@dataclass(frozen=True, slots=True)
class NodeRecord(Record):
    """What one agent says of itself."""

    READY: ClassVar[str] = "ready"
    RUNNING: ClassVar[str] = "running"
    STOPPED: ClassVar[str] = "stopped"
    LEAVING: ClassVar[str] = "leaving"

    uuid: str
    """the run it takes part in, or :func:`any_run`; a straggler of an earlier run of the same id has another one"""
    host: str
    address: str
    ports: tuple[int, ...]
    """freshly reserved for the next round"""
    workers: int
    rank: int | None
    """the group rank it asks for"""
    state: str
    round: int = 0
    """the round it runs or has stopped"""
    claim: RoundRecord | None = None
    """the round it runs, sent only when it registers again: a store that lost everything is refilled from it"""
    entry: RosterEntry | None = None
    """its place in the claimed round"""

    @classmethod
    def _build(cls, fields: dict[str, Any]) -> Self:
        claim, entry = fields.get("claim"), fields.get("entry")
        return cls(
            **{
                **fields,
                "ports": tuple(fields["ports"]),
                "claim": RoundRecord._build(claim) if claim else None,
                "entry": roster_entry(entry) if entry else None,
            }
        )


@dataclass(frozen=True, slots=True)
class RosterRecord(Record):
    """One part of a round's roster, in order of incarnation."""

    entries: tuple[RosterEntry, ...]

    @classmethod
    def _build(cls, fields: dict[str, Any]) -> Self:
        return cls(tuple(roster_entry(entry) for entry in fields["entries"]))


def _fields(value: Any) -> dict[str, Any]:
    # Every record and what it contains is a dataclass with slots: these are its fields, and nothing is copied.
    return {name: getattr(value, name) for name in value.__slots__}


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_fields)


def roster_entry(fields: dict[str, Any]) -> RosterEntry:
    """Rebuild a roster entry from its JSON fields."""
    return RosterEntry(**{**fields, "ports": tuple(fields["ports"])})
