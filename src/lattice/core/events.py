"""What happens to an agent (events, in the past tense) and what it wants done (effects, in the imperative)."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from lattice.core.dataclass import dataclass
from lattice.core.keyspace import Batch, KeyValue, Transaction
from lattice.core.records import FailureRecord, NodeRecord, OutcomeRecord, PaceRecord
from lattice.core.topology import Assignment, RosterEntry


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, at a moment of this node's monotonic clock."""

    at: float


@dataclass(frozen=True, slots=True)
class Ticked(Event):
    """Time passed."""


@dataclass(frozen=True, slots=True)
class Connected(Event):
    """The store answers: a lease is held, ``control/`` was read and is watched."""

    lease: int
    items: tuple[KeyValue, ...]
    revision: int
    emptied: bool = False
    """whether this is another store than before: it lost what was in it"""
    greeting: NodeRecord | None = None
    """what was written of this node in the same moment; see :func:`lattice.core.member.greet`"""


@dataclass(frozen=True, slots=True)
class Disconnected(Event):
    """The store does not answer any more, or never did."""

    reason: str


@dataclass(frozen=True, slots=True)
class StoreFailed(Event):
    """The store said no for good."""

    reason: str


@dataclass(frozen=True, slots=True)
class Viewed(Event):
    """The whole view was read anew, and is watched from there; answers :class:`ReadView`."""

    whole: bool
    items: tuple[KeyValue, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class Changed(Event):
    """Something below the watched prefix changed."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Written(Event):
    """A write was applied, or its guards did not hold; answers :class:`Write`."""

    tag: str
    succeeded: bool
    revision: int


@dataclass(frozen=True, slots=True)
class RosterRead(Event):
    """Entries of a round; answers :class:`ReadRoster`. Empty if that round is gone already."""

    number: int
    entries: tuple[RosterEntry, ...]


@dataclass(frozen=True, slots=True)
class WorkersFailed(Event):
    """A worker of this node ended badly; the others are being stopped."""

    failure: FailureRecord
    since: float | None = None
    """the moment of the first sign of it"""


@dataclass(frozen=True, slots=True)
class WorkersDone(Event):
    """All workers of this node exited 0."""

    pace: PaceRecord | None = None
    """of the slowest of them, if they gave heartbeats"""


@dataclass(frozen=True, slots=True)
class WorkersStopped(Event):
    """No worker of this node is left."""

    ports: tuple[int, ...]
    """freshly reserved for the next round"""


@dataclass(frozen=True, slots=True)
class GoodbyeAsked(Event):
    """This agent was told to leave."""

    signal: int
    reason: str = ""
    """why, where it was no signal"""


@dataclass(frozen=True, slots=True)
class Write:
    """Commit transactions in order, up to the first whose guards don't hold; make these leases first."""

    tag: str
    transactions: tuple[Transaction, ...]
    grants: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ReadView:
    """Read and watch ``control/``, or all of the run."""

    whole: bool


@dataclass(frozen=True, slots=True)
class ReadRoster:
    """Read one roster part of a round, or all of them at one moment."""

    number: int
    key: str
    whole: bool = False
    """whether the key is what all parts begin with"""


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Keep this lease alive beside the node's own, until another is named; 0 for none."""

    lease: int


@dataclass(frozen=True, slots=True)
class Revoke:
    """End a lease."""

    lease: int


@dataclass(frozen=True, slots=True)
class StartWorkers:
    """Start this node's workers of a round; answered by WorkersDone or WorkersFailed."""

    assignment: Assignment
    kind: str = ""
    """what ended the round before, as in :class:`lattice.core.incident.Verdict`"""
    reason: str = ""
    """the same for people"""


@dataclass(frozen=True, slots=True)
class StopWorkers:
    """Stop whatever runs; answered by WorkersStopped, at once if nothing does."""

    reason: str
    manner: str = ""
    """as in :mod:`lattice.core.supervision`; asked for again without it, the stop goes on at once"""


@dataclass(frozen=True, slots=True)
class Finish:
    """The last effect: leave with this exit code."""

    status: int
    message: str = ""
    """an error to print"""
    outcome: OutcomeRecord | None = None
    """the end of the run, if it ended"""
    late: bool = False
    """whether this agent had no part in it"""
    event: str = "finished"


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth telling: a journal line, and a console line if there is a text."""

    event: str
    text: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


Effect = Write | ReadView | ReadRoster | KeepAlive | Revoke | StartWorkers | StopWorkers | Finish | Note
