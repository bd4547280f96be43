"""How often to save: the interval at which saving and training again cost least together (Young and Daly). Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from lattice.checkpoint.history import Opened, Saved


@dataclass(frozen=True, slots=True)
class Advice:
    """What is known, and what follows."""

    interval: float
    """seconds between two saves"""
    steps: int
    """the same in steps; 0 if that is not known"""
    cost: float
    """seconds that a save takes from training"""
    between: float
    """seconds between two failures"""

    def __str__(self) -> str:
        steps = f" (about {self.steps} steps)" if self.steps else ""
        return (
            f"saving every {_shown(self.interval)}{steps} would lose least: a save costs {_shown(self.cost)}, "
            f"something fails every {_shown(self.between)}"
        )


def advice(opened: Opened, saved: Sequence[Saved]) -> Advice | None:
    """
    Suggest an interval.

    :param opened: by the run, just now
    :param saved: the newest first
    :return: None while too little is known: no failure, or no save
    """
    up = opened.at - opened.since
    costs = sorted(entry.stall for entry in saved if entry.stall > 0)
    if not opened.restarts or up <= 0 or not costs:
        return None
    cost, between = costs[len(costs) // 2], up / opened.restarts
    interval = max((2 * cost * between) ** 0.5, cost)
    pairs = [(new.step - old.step, new.at - old.at) for new, old in itertools.pairwise(saved)]
    paces = sorted(steps / seconds for steps, seconds in pairs if steps > 0 and seconds > 0)
    steps = round(interval * paces[len(paces) // 2]) if paces else 0
    return Advice(interval, steps, cost, between)


def _shown(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{1000 * seconds:.2g} ms"
