"""
The board: a few numbers per worker, in memory that the worker and its agent both see.

A line of the board has eight-byte fields of the machine's own kind, so that each is written in one go. Moments are
those of the host's monotonic clock, which all its processes share.
"""

from __future__ import annotations

from lattice.core.dataclass import dataclass

VARIABLE = "LATTICE_BOARD"
"""where a worker finds its line: PATH@OFFSET"""
NOTICE_VARIABLE = "LATTICE_NOTICE_FILE"
"""the file that appears when a worker is given notice; removing it says that the worker is ready"""
LINE = 128
"""bytes"""
ENTERED, GROUPED, FIRST_AT, BEAT_AT, LONGEST, NOTICED_UNTIL = range(6)
"""moments and durations; the first two are also known to the zygote, which can't import this"""
BEATS, FIRST_STEP, STEP, STACKS, WANTS, READY, PID = range(6, 13)
"""whole numbers"""
POLLS = -1
"""in WANTS, of a worker that looks for a notice by itself; otherwise the signal that it asked for, or 0"""
UNKNOWN = -1
"""in STEP and FIRST_STEP, of a worker that does not count"""


@dataclass(frozen=True, slots=True)
class Line:
    """What one worker has told."""

    entered: float = 0.0
    """when its script began; 0 if it was not forked from a zygote, which notes it"""
    grouped: float = 0.0
    """when its default process group was up; 0 if not, or unknown"""
    first_at: float = 0.0
    """its first heartbeat"""
    beat_at: float = 0.0
    """its last heartbeat"""
    longest: float = 0.0
    """the longest time between two heartbeats"""
    beats: int = 0
    first_step: int = UNKNOWN
    step: int = UNKNOWN
    stacks: int = 0
    """the signal that makes it write down its stacks; 0 if none does"""
    wants: int = 0
    """what it wants when it is given notice: a signal, POLLS, or 0 for nothing"""
    ready: bool = False
    """whether it has done what it wanted to do after a notice"""
    pid: int = 0
    """the process that tells all this, the worker itself or one that it started; 0 if none does"""

    @property
    def pace(self) -> float | None:
        """Give the mean seconds between two heartbeats."""
        return (self.beat_at - self.first_at) / (self.beats - 1) if self.beats > 1 else None


def read(moments: memoryview[float], counts: memoryview[int]) -> Line:
    """
    Read a line.

    :param moments: the line as doubles
    :param counts: the same bytes as signed integers
    """
    return Line(
        entered=moments[ENTERED],
        grouped=moments[GROUPED],
        first_at=moments[FIRST_AT],
        beat_at=moments[BEAT_AT],
        longest=moments[LONGEST],
        beats=counts[BEATS],
        first_step=counts[FIRST_STEP] if counts[BEATS] else UNKNOWN,
        step=counts[STEP] if counts[BEATS] else UNKNOWN,
        stacks=counts[STACKS],
        wants=counts[WANTS],
        ready=bool(counts[READY]),
        pid=counts[PID],
    )
