"""What the board tells of a round: whether its workers are up, which of them hangs, which is slow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from lattice.core.board import UNKNOWN, Line
from lattice.core.dataclass import dataclass, replace
from lattice.core.records import PaceRecord

PATIENCE = 10.0
"""seconds in which workers whose habits are not known may still form a process group"""
Lines = Mapping[int, Line]
"""by local rank"""


@dataclass(frozen=True, slots=True)
class Habits:
    """What workers of this script were seen to do in earlier rounds."""

    grouping: frozenset[int] = frozenset()
    """local ranks that formed a process group"""
    beating: frozenset[int] = frozenset()
    """local ranks that told of their progress"""
    longest_start: float = 0.0
    """seconds from the start to a first heartbeat, at most"""


def learn(habits: Habits, lines: Lines, started: float) -> Habits:
    """Remember what the workers of a round did."""
    starts = [line.first_at - started for line in lines.values() if line.beats]
    return replace(
        habits,
        grouping=habits.grouping | {rank for rank, line in lines.items() if line.grouped},
        beating=habits.beating | {rank for rank, line in lines.items() if line.beats},
        longest_start=max([habits.longest_start, *starts]),
    )


@dataclass(frozen=True, slots=True)
class Up:
    """All workers of a round do what they are for."""

    entered: float | None
    """when the last of them began with its script; None if that is not known"""
    at: float
    """when the last of them was up"""
    stage: str
    """how that is known: group, first step, or nothing but that they were started"""


def up(
    lines: Lines, living: Set[int], habits: Habits, started: float, warm: Set[int], groups: bool, now: float
) -> Up | None:
    """
    Tell whether the workers of a round are up, and since when.

    :param lines: what they have told
    :param living: those that have not ended
    :param habits: what they were seen to do before
    :param started: when they were started
    :param warm: those that were forked from a zygote, so that the beginning of their script is noted
    :param groups: whether a process group that these form is noted too
    :param now: the moment
    :return: None while more is to be expected
    """
    moments, stages = [], set()
    for rank, line in lines.items():
        if line.grouped or line.beats:
            moments.append(line.grouped or line.first_at)
            stages.add("group" if line.grouped else "first step")
            continue
        grouping = groups and rank in warm and (rank in habits.grouping or now < started + PATIENCE)
        begins = rank in warm and not line.entered
        if rank in living and (rank in habits.beating or grouping or begins):
            return None
        moments.append(line.entered or started)
    entered = [line.entered for line in lines.values() if line.entered]
    stage = "group" if "group" in stages else "first step" if stages else ""
    return Up(max(entered, default=None), max(moments), stage)


def signs(
    lines: Lines, living: Set[int], habits: Habits, started: float, timeout: float
) -> Iterator[tuple[float, int]]:
    """
    Tell until when each worker must give its next sign of life; of those only that are known to give any.

    Before its first one it has as long as that ever took, and the time-out beyond.
    """
    for rank in sorted(living):
        line = lines[rank]
        if line.beats:
            yield max(line.beat_at, started) + timeout, rank
        elif rank in habits.beating:
            yield started + habits.longest_start + timeout, rank


def hung(lines: Lines, overdue: Set[int]) -> int:
    """Choose, of those that are overdue, the one that the others wait for: the one that came least far."""
    return min(overdue, key=lambda rank: (lines[rank].step, lines[rank].beat_at, rank))


def slowest(lines: Lines, offset: int, host: str) -> PaceRecord | None:
    """
    Tell how fast the slowest worker was.

    :param lines: what they have told
    :param offset: the rank of the first of them
    :param host: where they ran
    """
    paces = [
        PaceRecord(offset + rank, host, line.pace, line.longest)
        for rank, line in lines.items()
        if line.pace is not None
    ]
    return max(paces, key=lambda pace: pace.step, default=None)


@dataclass(frozen=True, slots=True)
class Steps:
    """How far the workers of one node came in a round."""

    first: int = UNKNOWN
    last: int = UNKNOWN
    pace: float | None = None
    """mean seconds between two heartbeats"""


def steps(lines: Lines) -> Steps:
    """Sum up a round."""
    counted = [line for line in lines.values() if line.first_step != UNKNOWN]
    paces = [line.pace for line in lines.values() if line.pace is not None]
    return Steps(
        min((line.first_step for line in counted), default=UNKNOWN),
        max((line.step for line in counted), default=UNKNOWN),
        sum(paces) / len(paces) if paces else None,
    )
