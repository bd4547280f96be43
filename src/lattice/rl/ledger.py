"""
Which numbers were accepted of whom, so that nothing is taken in twice, however often it is sent.

Workers count from 1 without gaps and send in that order, so one mark for each of them says nearly all; what came ahead
of its turn is remembered one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Ledger:
    """The ids that were accepted."""

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._ahead: dict[str, set[int]] = {}

    def __contains__(self, identity: tuple[str, int]) -> bool:
        worker, number = identity
        return number <= self.mark(worker) or number in self._ahead.get(worker, ())

    def mark(self, worker: str) -> int:
        """Give the number up to which everything of a worker was accepted; 0 for nothing."""
        return self._marks.get(worker, 0)

    def marks(self) -> dict[str, int]:
        """Give the marks of all workers."""
        return dict(self._marks)

    def accept(self, worker: str, number: int) -> bool:
        """
        Accept an id.

        :return: false if it was accepted before
        """
        if (worker, number) in self:
            return False
        ahead = self._ahead.setdefault(worker, set())
        ahead.add(number)
        mark = self.mark(worker)
        while mark + 1 in ahead:
            mark += 1
            ahead.remove(mark)
        self._marks[worker] = mark
        if not ahead:
            del self._ahead[worker]
        return True

    def begin(self, worker: str, number: int) -> None:
        """Hear that a worker has nothing left before a number: whatever that was, it will not come again."""
        self._marks[worker] = max(self.mark(worker), number - 1)
        ahead = {one for one in self._ahead.pop(worker, ()) if one > self._marks[worker]}
        for one in sorted(ahead):
            self.accept(worker, one)

    def state(self) -> dict[str, Any]:
        """Give what a checkpoint needs."""
        return {"marks": dict(self._marks), "ahead": {worker: sorted(those) for worker, those in self._ahead.items()}}

    @staticmethod
    def of(state: Mapping[str, Any]) -> Ledger:
        """Make the ledger that a checkpoint has."""
        made = Ledger()
        made._marks = {str(worker): int(mark) for worker, mark in state["marks"].items()}
        made._ahead = {str(worker): {int(one) for one in those} for worker, those in state["ahead"].items()}
        return made
