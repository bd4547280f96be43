"""The books of one node: where its time went, what each recovery cost, and what is left of it as training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from lattice.core.board import UNKNOWN
from lattice.core.dataclass import dataclass
from lattice.core.pulse import Steps, Up

START, TRAINING, LOST = "start", "training", "lost"
ENDED = "ended"
"""the kind of a loss after which no round followed"""


@dataclass(frozen=True, slots=True)
class Bill:
    """What one recovery, or the start, took on this node."""

    kind: str
    """what made it necessary; empty for the start"""
    stages: tuple[tuple[str, float], ...]
    """one after another, in seconds"""

    @property
    def total(self) -> float:
        """Give the seconds from the first sign of trouble to workers that are up."""
        return sum(seconds for _, seconds in self.stages)


@dataclass(frozen=True, slots=True)
class Loss:
    """What one kind of trouble cost."""

    times: int = 0
    seconds: float = 0.0
    repeated: int = 0
    """steps that were trained again; the time for them is in the seconds"""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The books at one moment. Moments are those of one monotonic clock."""

    began: float
    since: float
    """when the present phase began"""
    phase: str = START
    kind: str = ""
    """what ended the last round"""
    noticed: float | None = None
    stopped: float | None = None
    ordered: float | None = None
    """when the store's word for the next round was there"""
    started: float | None = None
    """when its workers were started"""
    reached: Steps = Steps()
    """how far the rounds before came"""
    starting: float = 0.0
    """seconds in the phase START"""
    trained: float = 0.0
    losses: Mapping[str, Loss] = field(default_factory=dict)


def open_ledger(at: float) -> Ledger:
    """Begin the books when the agent begins."""
    return Ledger(began=at, since=at, noticed=at, stopped=at)


def _add(ledger: Ledger, kind: str, seconds: float, times: int = 0, repeated: int = 0) -> Ledger:
    before = ledger.losses.get(kind, Loss())
    loss = Loss(before.times + times, before.seconds + seconds, before.repeated + repeated)
    return replace(ledger, losses={**ledger.losses, kind: loss})


def _pass(ledger: Ledger, at: float, steps: Steps) -> Ledger:
    """Book the time since the phase began."""
    seconds = max(at - ledger.since, 0.0)
    if ledger.phase == START:
        return replace(ledger, starting=ledger.starting + seconds, since=at)
    if ledger.phase == LOST:
        return replace(_add(ledger, ledger.kind or ENDED, seconds), since=at)
    again, before = 0.0, ledger.reached
    pace = steps.pace or before.pace
    if pace is not None and UNKNOWN not in (steps.first, before.last) and steps.first <= before.last:
        # The last step reached was trained before, and so was everything since the one that was begun with.
        repeated = min(before.last, steps.last) - steps.first + 1
        again = min(repeated * pace, seconds)
        ledger = _add(ledger, ledger.kind, again, repeated=repeated)
    reached = Steps(steps.first, max(steps.last, before.last), pace)
    return replace(ledger, trained=ledger.trained + seconds - again, since=at, reached=reached)


def disturb(ledger: Ledger, sign: float, at: float, steps: Steps) -> Ledger:
    """
    Book that a round ends here.

    :param ledger: the books
    :param sign: the moment of the first sign
    :param at: when it was understood
    :param steps: how far the round came here
    """
    if ledger.phase != TRAINING and ledger.started is None:
        return ledger  # what follows from the first sign costs nothing of its own
    ledger = _pass(ledger, max(sign, ledger.since), steps)
    return replace(ledger, phase=LOST, kind="", noticed=at, stopped=None, ordered=None, started=None)


def stop(ledger: Ledger, at: float) -> Ledger:
    """Book that no worker is left."""
    return ledger if ledger.phase == TRAINING or ledger.stopped is not None else replace(ledger, stopped=at)


def order(ledger: Ledger, at: float, kind: str) -> Ledger:
    """Book that the next round is known here, and why it became necessary."""
    stopped = at if ledger.stopped is None else ledger.stopped
    if ledger.phase == LOST:
        ledger = replace(_add(ledger, kind, 0.0, times=1), kind=kind)
    return replace(ledger, stopped=stopped, ordered=at)


def begin(ledger: Ledger, at: float) -> Ledger:
    """Book that workers were started."""
    return ledger if ledger.ordered is None else replace(ledger, started=at)


def recover(ledger: Ledger, workers: Up) -> tuple[Ledger, Bill]:
    """Book that the workers are up, and write the bill."""
    noticed, stopped, ordered = ledger.noticed, ledger.stopped, ledger.ordered
    assert noticed is not None and stopped is not None and ordered is not None and ledger.started is not None
    forked = ledger.started if workers.entered is None else workers.entered
    moments = [
        ("detect", ledger.since, noticed),
        ("stop", noticed, stopped),
        ("rendezvous", stopped, ordered),
        ("start" if workers.entered is None else "fork", ordered, forked),
        (workers.stage, forked, workers.at),
    ]
    shown = moments[2:] if ledger.phase == START else moments
    bill = Bill(ledger.kind, tuple((name, max(end - begin, 0.0)) for name, begin, end in shown if name))
    at = max(workers.at, ledger.since)
    return replace(_pass(ledger, at, Steps()), phase=TRAINING, started=None, ordered=None), bill


@dataclass(frozen=True, slots=True)
class Totals:
    """Where the time of this node went."""

    seconds: float
    trained: float
    starting: float
    losses: Mapping[str, Loss]
    """by kind"""

    @property
    def goodput(self) -> float:
        """Give the share of the time in which something was trained that did not have to be trained again."""
        return self.trained / self.seconds if self.seconds > 0 else 0.0


def close(ledger: Ledger, at: float, steps: Steps) -> Totals:
    """Sum up."""
    ledger = _pass(ledger, at, steps)
    return Totals(at - ledger.began, ledger.trained, ledger.starting, ledger.losses)
