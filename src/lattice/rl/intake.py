"""
The learner's half of the promise that nothing is lost or taken in twice. No clock, no network.

What was *taken* is in the learner's memory, and gives the worker room to send more. What is *kept* is in a committed
checkpoint as well, one that the log in the storage has: only that may the worker forget.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from lattice.rl.ledger import Ledger


class Verdict(Enum):
    """What becomes of a trajectory that came."""

    TAKEN = "taken"
    DUPLICATE = "duplicate"
    """it was there already, and is told so again"""
    STALE = "stale"
    """the policy that made it is too old: it will not be trained on, and need not be sent again"""
    UNFIT = "unfit"
    """nothing can be learned from it: the same"""


class Intake:
    """Who was heard up to where."""

    def __init__(self, staleness: int | None = None) -> None:
        """
        Begin with nothing.

        :param staleness: how many versions a trajectory may be behind; None for any number
        """
        self.staleness = staleness
        self.ledger = Ledger()
        self.counts = dict.fromkeys(Verdict, 0)
        self._kept: dict[str, int] = {}

    def hear(self, worker: str, number: int, version: int, newest: int, steps: bool = True) -> Verdict:
        """
        Judge what came.

        :param version: of the policy that acted; a restarted learner may know of older ones only, which is no fault
        :param newest: version that the learner has
        :param steps: false for what no age spoils, such as an evaluation
        """
        verdict = Verdict.TAKEN
        if (worker, number) in self.ledger:
            verdict = Verdict.DUPLICATE
        elif steps and self.staleness is not None and newest - version > self.staleness:
            verdict = Verdict.STALE
        self.ledger.accept(worker, number)
        self.counts[verdict] += 1
        return verdict

    def refuse(self, worker: str, number: int) -> Verdict:
        """Hear of one that is unfit."""
        verdict = Verdict.UNFIT if self.ledger.accept(worker, number) else Verdict.DUPLICATE
        self.counts[verdict] += 1
        return verdict

    def greet(self, worker: str, first: int) -> tuple[int, int]:
        """
        Hear that a worker is there.

        :param first: the first number that it still has. A learner without the checkpoint that the others are in does
            not wait for them
        :return: see :meth:`marks`
        """
        if first - 1 > self.ledger.mark(worker):
            self.ledger.begin(worker, first)
        return self.marks(worker)

    def marks(self, worker: str) -> tuple[int, int]:
        """Give the numbers up to which a worker's were taken, and kept."""
        return self.ledger.mark(worker), self._kept.get(worker, 0)

    def saved(self, state: Mapping[str, Any]) -> None:
        """Note that a state of this, see :meth:`state`, is in a committed checkpoint."""
        self._kept = dict(state["ledger"]["marks"])

    def state(self) -> dict[str, Any]:
        """Give what a checkpoint needs."""
        return {
            "ledger": self.ledger.state(),
            "counts": {verdict.value: count for verdict, count in self.counts.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """
        Go on from a checkpoint.

        It may have come from the memory of the node: call :meth:`saved` once it is committed.
        """
        self.ledger = Ledger.of(state["ledger"])
        self.counts = {verdict: int(state["counts"].get(verdict.value, 0)) for verdict in Verdict}
