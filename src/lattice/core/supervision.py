"""The workers of one round on one node: who lives, when to stop, what to report. Pure, like rendezvous."""

from __future__ import annotations

from lattice.core.dataclass import dataclass, replace

NOTICE = "notice"
"""a manner of stopping: nothing is wrong, so workers that asked for it are told first, and may save"""
STACKS = "stacks"
"""a manner of stopping: the workers hang, so they are made to write down where"""
DUMP_TIME = 2.0
"""seconds that workers have to write down their stacks, which takes milliseconds; nothing tells when they are done"""


@dataclass(frozen=True, slots=True)
class Exited:
    """A worker ended."""

    at: float
    local_rank: int
    status: int
    """0 for success"""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The round ends: the workers shall stop."""

    at: float
    manner: str = ""
    """at once, NOTICE or STACKS"""
    listeners: frozenset[int] = frozenset()
    """the workers that asked for notice"""


@dataclass(frozen=True, slots=True)
class Readied:
    """A worker has done what it wanted to do after a notice."""

    at: float
    local_rank: int


@dataclass(frozen=True, slots=True)
class Hung:
    """A worker has not told of any progress for too long."""

    at: float
    local_rank: int


@dataclass(frozen=True, slots=True)
class HurryAsked:
    """No more grace."""

    at: float


@dataclass(frozen=True, slots=True)
class Passed:
    """Time passed."""

    at: float


@dataclass(frozen=True, slots=True)
class Notify:
    """Give these workers notice: they have until some moment."""

    local_ranks: tuple[int, ...]
    until: float


@dataclass(frozen=True, slots=True)
class DumpStacks:
    """Make these workers write down where they are."""

    local_ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask these workers to end (SIGTERM)."""

    local_ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """End these workers (SIGKILL)."""

    local_ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReportFailure:
    """This worker was the first of the node to fail."""

    local_rank: int
    hung: bool = False
    """whether it still lives, but does not get on"""


@dataclass(frozen=True, slots=True)
class ReportDone:
    """All workers ended well."""


@dataclass(frozen=True, slots=True)
class ReportStopped:
    """No worker is left after a stop or a failure."""


Happening = Exited | StopAsked | Readied | Hung | HurryAsked | Passed
Order = Notify | DumpStacks | Terminate | Kill | ReportFailure | ReportDone | ReportStopped


@dataclass(frozen=True, slots=True)
class Group:
    """One round's workers on this node."""

    living: frozenset[int]
    grace: float
    """seconds between Terminate and Kill"""
    notice: float = 0.0
    """seconds between Notify and Terminate"""
    stopping: bool = False
    awaited: frozenset[int] = frozenset()
    """the workers that were given notice and are not ready yet"""
    terminate_at: float | None = None
    kill_at: float | None = None
    over: bool = False
    """whether the end was reported"""

    @property
    def deadline(self) -> float | None:
        """Tell when Passed is needed."""
        return self.kill_at if self.terminate_at is None else self.terminate_at


def supervise(group: Group, happening: Happening) -> tuple[Group, tuple[Order, ...]]:
    """
    Take what happened and decide.

    The first bad exit is reported at once and stops the rest; exits after a stop was asked for are its consequence
    and reported by nobody.
    """
    at = happening.at
    match happening:
        case Exited(local_rank=rank, status=status):
            group = replace(group, living=group.living - {rank})
            if status != 0 and not group.stopping:
                group, orders = _terminate(group, at)
                return _settle(group, (ReportFailure(rank), *orders))
            return _settle(*_ready(group, rank, at))
        case StopAsked(manner=manner, listeners=listeners):
            if group.over:
                return group, (ReportStopped(),)
            if not group.stopping:
                return _settle(*_stop(group, at, manner, listeners & group.living))
            # Something went wrong while workers were saving: there is nothing to wait for any more.
            return _terminate(group, at) if group.awaited and manner != NOTICE else (group, ())
        case Readied(local_rank=rank):
            return _ready(group, rank, at)
        case Hung(local_rank=rank):
            if group.stopping or rank not in group.living:
                return group, ()
            group, orders = _stop(group, at, STACKS, frozenset())
            return group, (ReportFailure(rank, hung=True), *orders)
        case HurryAsked():
            hurried = replace(group, awaited=frozenset(), terminate_at=None, kill_at=None)
            return hurried, (Kill(tuple(sorted(group.living))),) if group.living else ()
        case Passed():
            if group.terminate_at is not None and at >= group.terminate_at:
                return _terminate(group, at)
            if group.kill_at is None or at < group.kill_at:
                return group, ()
            return replace(group, kill_at=None), (Kill(tuple(sorted(group.living))),)


def _stop(group: Group, at: float, manner: str, listeners: frozenset[int]) -> tuple[Group, tuple[Order, ...]]:
    stopping = replace(group, stopping=True)
    if manner == NOTICE and listeners and group.notice > 0:
        until = at + group.notice
        return replace(stopping, awaited=listeners, terminate_at=until), (Notify(tuple(sorted(listeners)), until),)
    if manner == STACKS and group.living:
        return replace(stopping, terminate_at=at + DUMP_TIME), (DumpStacks(tuple(sorted(group.living))),)
    return _terminate(group, at)


def _ready(group: Group, rank: int, at: float) -> tuple[Group, tuple[Order, ...]]:
    if rank not in group.awaited:
        return group, ()
    group = replace(group, awaited=group.awaited - {rank})
    return (group, ()) if group.awaited else _terminate(group, at)


def _terminate(group: Group, at: float) -> tuple[Group, tuple[Order, ...]]:
    orders = (Terminate(tuple(sorted(group.living))),) if group.living else ()
    kill_at = at + group.grace if group.living else None
    return replace(group, stopping=True, awaited=frozenset(), terminate_at=None, kill_at=kill_at), orders


def _settle(group: Group, orders: tuple[Order, ...]) -> tuple[Group, tuple[Order, ...]]:
    if group.living or group.over:
        return group, orders
    ended = replace(group, over=True, terminate_at=None, kill_at=None)
    return ended, (*orders, ReportStopped() if group.stopping else ReportDone())
