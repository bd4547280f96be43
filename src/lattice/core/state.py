"""What one agent knows: of the store, of its own workers, and, while it leads, of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any, Generic, TypeVar

from lattice.core.dataclass import dataclass, replace
from lattice.core.events import Effect, Finish, Write
from lattice.core.keyspace import KeyValue, Removed, Transaction
from lattice.core.records import (
    Keys,
    LeaderRecord,
    LostRecord,
    NodeRecord,
    OutcomeRecord,
    Record,
    ReportRecord,
    RosterRecord,
    RoundRecord,
    RunRecord,
    WrongRecordError,
)
from lattice.core.spec import Policy
from lattice.core.topology import RosterEntry

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class Seen(Generic[R]):
    """A record as the store has it."""

    record: R
    created: int
    modified: int


@dataclass(frozen=True)  # without slots, as the state
class View:
    """The part of the store that is watched, at one revision: records by key."""

    keys: Keys
    whole: bool = False
    revision: int = 0
    run: Seen[RunRecord] | None = None
    leader: Seen[LeaderRecord] | None = None
    round: Seen[RoundRecord] | None = None
    outcome: Seen[OutcomeRecord] | None = None
    nodes: Mapping[str, Seen[NodeRecord]] = field(default_factory=dict)
    """by incarnation; empty unless the whole run is watched, like all below"""
    reports: Mapping[tuple[int, str], Seen[ReportRecord]] = field(default_factory=dict)
    """by round and incarnation"""
    rosters: Mapping[tuple[int, int], RosterRecord] = field(default_factory=dict)
    """by round and part"""
    lost: Mapping[int, LostRecord] = field(default_factory=dict)
    """by round"""


def changed(view: View, changes: tuple[KeyValue | Removed, ...], revision: int) -> View:
    """Give the view after some changes."""
    nodes, reports, rosters, lost = view.nodes, view.reports, view.rosters, view.lost
    keys = view.keys
    control: dict[str, Any] = {}
    kinds: dict[str, tuple[str, type[Record]]] = {
        keys.run: ("run", RunRecord),
        keys.leader: ("leader", LeaderRecord),
        keys.round: ("round", RoundRecord),
        keys.outcome: ("outcome", OutcomeRecord),
    }
    for change in changes:
        key = change.key
        try:
            if key in kinds:
                name, kind = kinds[key]
                control[name] = None if isinstance(change, Removed) else _seen(change, kind)
            elif key.startswith(keys.nodes):
                nodes = dict(nodes) if nodes is view.nodes else nodes
                _update(nodes, key.removeprefix(keys.nodes), change, NodeRecord)
            elif key.startswith(keys.reports()):
                reports = dict(reports) if reports is view.reports else reports
                number, _, incarnation = key.removeprefix(keys.reports()).partition("/")
                _update(reports, (int(number), incarnation), change, ReportRecord)
            elif key.startswith(keys.rosters()):
                rosters = dict(rosters) if rosters is view.rosters else rosters
                number, _, part = key.removeprefix(keys.rosters()).partition("/")
                if isinstance(change, Removed):
                    rosters.pop((int(number), int(part)), None)  # type: ignore[attr-defined]
                else:
                    rosters[int(number), int(part)] = RosterRecord.decode(change.value)  # type: ignore[index]
            elif key.startswith(keys.lost()):
                of = int(key.removeprefix(keys.lost()))
                noted = {} if isinstance(change, Removed) else {of: LostRecord.decode(change.value)}
                lost = {other: record for other, record in lost.items() if other != of} | noted
        except (WrongRecordError, ValueError):
            continue  # somebody else's key, or a newer Lattice's: not ours to judge
    return replace(
        view,
        revision=max(view.revision, revision),
        nodes=nodes,
        reports=reports,
        rosters=rosters,
        lost=lost,
        **control,
    )


def _update(target, key, change, kind) -> None:  # type: ignore[no-untyped-def]
    if isinstance(change, Removed):
        target.pop(key, None)
    else:
        target[key] = _seen(change, kind)


def _seen(item: KeyValue, kind: type[R]) -> Seen[R]:
    return Seen(kind.decode(item.value), item.create_revision, item.mod_revision)


class Workers(Enum):
    """What this node's workers do."""

    IDLE = "idle"
    RUNNING = "running"
    STOPPING = "stopping"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Place:
    """What the roster of a round says of this node."""

    number: int
    entry: RosterEntry | None
    """None: not in that round"""
    members: tuple[RosterEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """What this agent is."""

    run_id: str
    incarnation: str
    host: str
    address: str
    workers: int
    role: str = "default"
    rank: int | None = None
    whole_roster: bool = False

    @property
    def keys(self) -> Keys:
        """Give the keys of its run."""
        return Keys(self.run_id)


@dataclass(frozen=True, slots=True)
class Leading:
    """What only a leader keeps in mind; a new leader begins anew."""

    joined_at: float
    """when the last node came"""
    waiting_since: float | None = None
    """since when there are fewer nodes than the minimum"""
    patient: bool = True
    """whether the next round gives a last call"""
    number: int = 0
    """the round that the two below are about"""
    sealed_at: float | None = None
    """None for a round that another leader sealed: long ago, as far as anyone knows"""
    ended_at: float | None = None
    grew_at: float | None = None
    """when the last round that only admitted newcomers was begun"""
    fast: int = 0
    """short rounds in a row"""
    roster: tuple[RosterEntry, ...] = ()
    """all members of that round by rank, once their parts have been put together"""


@dataclass(frozen=True)  # without slots: it has many fields and is copied for every event, see replace
class State:
    """One agent at one moment."""

    me: Identity
    policy: Policy
    now: float
    view: View
    ports: tuple[int, ...]
    started: float = 0.0
    # the store
    lease: int | None = None
    """this node's lease; None while the store is out of reach"""
    since: float | None = None
    """since when the store has answered without a break, or has been out of reach; None before the first try"""
    trouble: str = ""
    """why the store is out of reach"""
    met: bool = False
    """whether the store ever answered"""
    pending: frozenset[str] = frozenset()
    """writes and reads that are under way"""
    kept: int = 0
    """the run lease that this agent keeps alive"""
    awaited: int = 0
    """a write of ours was applied at this revision: nothing that it may have changed is decided before it is seen"""
    tried: int = 0
    """what had been seen when this agent last tried to begin a run or to lead; whoever was faster is seen after it"""
    leaderless: float | None = None
    """since when nobody leads, as far as this agent can see"""
    # the run
    uuid: str = ""
    """the run that this agent takes part in"""
    made: int = 0
    """how many runs this agent has begun"""
    emptied: bool = False
    """whether the store lost everything and this agent is refilling it"""
    joined: float | None = None
    """the session (by its beginning) in which the run was last seen"""
    found_dead: float | None = None
    """since when there is a run that had no leader when this agent came"""
    # this node
    sent: NodeRecord | None = None
    """the node record as written in this session"""
    sent_at: float = 0.0
    came: int = 0
    """the revision at which it was first written in this session"""
    claiming: bool = False
    """whether node records carry the round (after a reconnection)"""
    workers: Workers = Workers.IDLE
    manner: str = ""
    """how they were told to stop"""
    round: RoundRecord | None = None
    """the last round that was started here"""
    entry: RosterEntry | None = None
    passed: int = 0
    """the last round that was seen to end while nothing ran here: it will not be started here any more"""
    place: Place | None = None
    reading: str = ""
    """the run whose roster is being read: a run that was begun anew has other rounds under the same numbers"""
    report: ReportRecord | None = None
    report_sent: bool = False
    leaving: int | None = None
    """the signal that asked for it"""
    asked: str = ""
    """what asked for it, where it was no signal"""
    ending: Finish | None = None
    """how to leave once the workers are stopped"""
    finished: bool = False
    told: str = ""
    """the last thing said about waiting, so that it is said once"""
    leading: Leading | None = None

    @property
    def keys(self) -> Keys:
        """Give the keys of the run."""
        return self.view.keys

    @property
    def leads(self) -> bool:
        """Tell whether this agent is the leader, as far as it knows."""
        leader = self.view.leader
        return self.lease is not None and leader is not None and leader.record.incarnation == self.me.incarnation

    @property
    def settled(self) -> bool:
        """Tell whether the store has answered long enough for absence to mean loss."""
        return self.lease is not None and self.since is not None and self.now >= self.since + self.policy.lease_ttl

    @property
    def caught_up(self) -> bool:
        """Tell whether the view shows what this agent itself wrote."""
        return self.view.revision >= self.awaited


Move = tuple[State, tuple[Effect, ...]]


def lease_of(uuid: str, purpose: str) -> int:
    """Give the id of a lease that belongs to a run, the same for everybody, so that granting it twice is harmless."""
    number = 0xCBF29CE484222325
    for byte in f"{uuid}/{purpose}".encode():  # FNV-1a: uuids are random already, and hashlib takes long to load
        number = (number ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return (number >> 1) | 1


def write(state: State, tag: str, *transactions: Transaction, grants: tuple[tuple[int, float], ...] = ()) -> Move:
    """Begin a write; no other of the same tag begins before its answer."""
    return replace(state, pending=state.pending | {tag}), (Write(tag, transactions, grants),)
