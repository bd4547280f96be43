"""Figures of several tries, taken in turns so that a busy minute of the machine hits all sides alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Try:
    """What one try gave."""

    figures: Mapping[str, float] = field(default_factory=dict)
    """by name; what did not come before the time-out is not there"""
    cpu: float | None = None
    """processor seconds; of whom and from when on depends on the scenario"""
    gave_up: bool = False
    """whether the agents ended, so that there is nothing to wait for any more"""


@dataclass(frozen=True, slots=True)
class Contender:
    """One side of a comparison."""

    name: str
    attempt: Callable[[], Try]
    tries: int


@dataclass(frozen=True, slots=True)
class Series:
    """All tries of one side."""

    name: str
    tries: tuple[Try, ...]

    def missing(self, figure: str) -> tuple[int, int]:
        """Tell in how many tries it did not come to this: those that hung, and those in which the agents gave up."""
        without = [one for one in self.tries if figure not in one.figures]
        gave_up = sum(one.gave_up for one in without)
        return len(without) - gave_up, gave_up

    def median(self, figure: str) -> float | None:
        """Give the median over the tries that gave something."""
        values = [one.figures[figure] for one in self.tries if figure in one.figures]
        return statistics.median(values) if values else None

    def spread(self, figure: str) -> tuple[float, float] | None:
        """Give the least and the greatest value."""
        values = [one.figures[figure] for one in self.tries if figure in one.figures]
        return (min(values), max(values)) if values else None

    @property
    def cpu(self) -> float | None:
        """Give the median of the processor seconds."""
        values = [one.cpu for one in self.tries if one.cpu is not None]
        return statistics.median(values) if values else None


@dataclass(frozen=True, slots=True)
class Sides:
    """The same thing done by each side."""

    ours: Series
    theirs: Series
    third: Series | None = None
    """what both are seen against, in some scenarios"""

    @property
    def all(self) -> tuple[Series, ...]:
        """Give those that there are."""
        return (self.ours, self.theirs, *([self.third] if self.third else []))

    @property
    def figures(self) -> tuple[str, ...]:
        """Name the figures that any side gave, in order."""
        return tuple(dict.fromkeys(name for side in self.all for one in side.tries for name in one.figures))


def in_turns(contenders: tuple[Contender, ...]) -> Iterator[tuple[Contender, int]]:
    """Give A B A B …, and what is left of the one with more tries."""
    for number in range(max(one.tries for one in contenders)):
        for contender in contenders:
            if number < contender.tries:
                yield contender, number
