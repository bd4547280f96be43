"""Keeps the books of this node while the agent runs: a bill after each recovery, the sum at the end."""

from __future__ import annotations

import time
from collections.abc import Callable

from lattice.core import ledger
from lattice.core.pulse import Steps, Up
from lattice.telemetry import bill
from lattice.telemetry.journal import Journal

WORTH_TELLING = 60.0
"""seconds that a run without any trouble must last for its sum to be told; the journal always has it"""


class Accounts:
    """Tells the ledger what happened, and the user what the ledger says."""

    def __init__(self, journal: Journal, say: Callable[..., None]) -> None:
        self._journal = journal
        self._say = say
        self._books = ledger.open_ledger(time.monotonic())
        self._round = 0

    def disturbed(self, sign: float, at: float, steps: Steps) -> None:
        """Hear that the round ends here; see :func:`lattice.core.ledger.disturb`."""
        self._books = ledger.disturb(self._books, sign, at, steps)

    def stopped(self, at: float) -> None:
        """Hear that no worker is left."""
        self._books = ledger.stop(self._books, at)

    def ordered(self, number: int, kind: str) -> None:
        """Hear of the next round, and what made it necessary."""
        self._round = number
        self._books = ledger.order(self._books, time.monotonic(), kind)

    def started(self, at: float) -> None:
        """Hear that its workers were started."""
        self._books = ledger.begin(self._books, at)

    def up(self, workers: Up) -> None:
        """Hear that they are up."""
        if self._books.started is None:
            return
        self._books, made = ledger.recover(self._books, workers)
        if made.kind:
            self._say(bill.bill(made))
        stages = {name.replace(" ", "_"): round(seconds, 4) for name, seconds in made.stages}
        event = "recovered" if made.kind else "up"
        self._journal.write(event, round=self._round, kind=made.kind, took=round(made.total, 4), **stages)

    def close(self, steps: Steps) -> None:
        """Sum up: where the time of this node went."""
        totals = ledger.close(self._books, time.monotonic(), steps)
        if totals.losses or totals.seconds >= WORTH_TELLING:
            self._say(bill.totals(totals), routine=True)
        self._journal.write(
            "goodput",
            seconds=round(totals.seconds, 4),
            trained=round(totals.trained, 4),
            starting=round(totals.starting, 4),
            goodput=round(totals.goodput, 4),
            lost={
                kind: {"times": loss.times, "seconds": round(loss.seconds, 4), "repeated": loss.repeated}
                for kind, loss in totals.losses.items()
            },
        )
