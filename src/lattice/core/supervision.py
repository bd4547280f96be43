"""The workers of one round on one node: who lives, when to stop, what to report. Pure, like rendezvous."""

from __future__ import annotations

from dataclasses import replace

from lattice.core.dataclass import dataclass


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


@dataclass(frozen=True, slots=True)
class HurryAsked:
    """No more grace."""

    at: float


@dataclass(frozen=True, slots=True)
class Passed:
    """Time passed."""

    at: float


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


@dataclass(frozen=True, slots=True)
class ReportDone:
    """All workers ended well."""


@dataclass(frozen=True, slots=True)
class ReportStopped:
    """No worker is left after a stop or a failure."""


Happening = Exited | StopAsked | HurryAsked | Passed
Order = Terminate | Kill | ReportFailure | ReportDone | ReportStopped


@dataclass(frozen=True, slots=True)
class Group:
    """One round's workers on this node."""

    living: frozenset[int]
    grace: float
    stopping: bool = False
    kill_at: float | None = None
    over: bool = False
    """whether the end was reported"""


def supervise(group: Group, happening: Happening) -> tuple[Group, tuple[Order, ...]]:
    """
    Take what happened and decide.

    The first bad exit is reported at once and stops the rest; exits after a stop was asked for are its consequence
    and reported by nobody.
    """
    match happening:
        case Exited(local_rank=rank, status=status):
            group = replace(group, living=group.living - {rank})
            if status != 0 and not group.stopping:
                group, orders = _stop(group, happening.at)
                return _settle(group, (ReportFailure(rank), *orders))
            return _settle(group, ())
        case StopAsked():
            if group.over:
                return group, (ReportStopped(),)
            return _settle(*_stop(group, happening.at)) if not group.stopping else (group, ())
        case HurryAsked():
            return replace(group, kill_at=None), (Kill(tuple(sorted(group.living))),) if group.living else ()
        case Passed():
            if group.kill_at is None or happening.at < group.kill_at:
                return group, ()
            return replace(group, kill_at=None), (Kill(tuple(sorted(group.living))),)


def _stop(group: Group, at: float) -> tuple[Group, tuple[Order, ...]]:
    orders = (Terminate(tuple(sorted(group.living))),) if group.living else ()
    return replace(group, stopping=True, kill_at=at + group.grace if group.living else None), orders


def _settle(group: Group, orders: tuple[Order, ...]) -> tuple[Group, tuple[Order, ...]]:
    if group.living or group.over:
        return group, orders
    ended = replace(group, over=True, kill_at=None)
    return ended, (*orders, ReportStopped() if group.stopping else ReportDone())
