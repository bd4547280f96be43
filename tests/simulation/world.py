"""Virtual time, chance from a seed, and a trace: the ground on which simulated agents and a simulated store stand."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any


class World:
    """A queue of things to happen; the same seed makes the same things happen in the same order."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now = 0.0
        self.trace: list[tuple[float, str, Any]] = []
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._order = count()

    def later(self, delay: float, action: Callable[[], object]) -> None:
        """Do something after some virtual seconds."""
        heapq.heappush(self._queue, (self.now + delay, next(self._order), action))

    def run(self, until: float, ended: Callable[[], bool] = lambda: False) -> None:
        """Let things happen up to a moment, or until something holds."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            self.now, _, action = heapq.heappop(queue)
            action()
            if ended():
                return
        self.now = until

    def note(self, who: str, what: Any) -> None:
        """Remember what happened, for the trace of a schedule that fails."""
        self.trace.append((self.now, who, what))

    def chance(self, probability: float) -> bool:
        """Toss a coin."""
        return self.random.random() < probability

    def between(self, low: float, high: float) -> float:
        """Draw a number."""
        return low + (high - low) * self.random.random()
