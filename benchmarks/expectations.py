"""What is expected of Lattice, and whether it held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from benchmarks.measure import Sides


class Expectation(Protocol):
    """One thing that is expected of one figure."""

    @property
    def figure(self) -> str:
        """Name the figure."""

    def asked(self, sides: Sides, unit: str) -> str:
        """Say what is expected, in the words of the table."""

    def holds(self, sides: Sides) -> bool:
        """Tell whether it is so; what was never reached does not hold."""


@dataclass(frozen=True, slots=True)
class Times:
    """So many times faster, or smaller, than the other side, or that one never came to it."""

    figure: str
    times: float

    def asked(self, sides: Sides, unit: str) -> str:
        return f"≥ {self.times:g}×"  # noqa: RUF001

    def holds(self, sides: Sides) -> bool:
        mine, other = sides.ours.median(self.figure), sides.theirs.median(self.figure)
        return mine is not None and (other is None or other / mine >= self.times)


@dataclass(frozen=True, slots=True)
class AtMost:
    """No more than this."""

    figure: str
    most: float

    def asked(self, sides: Sides, unit: str) -> str:
        return f"≤ {self.most:g} {unit}"

    def holds(self, sides: Sides) -> bool:
        mine = sides.ours.median(self.figure)
        return mine is not None and mine <= self.most


@dataclass(frozen=True, slots=True)
class LessThanThird:
    """Less than the third side."""

    figure: str

    def asked(self, sides: Sides, unit: str) -> str:
        return f"< {sides.third.name}" if sides.third else ""

    def holds(self, sides: Sides) -> bool:
        mine = sides.ours.median(self.figure)
        other = sides.third.median(self.figure) if sides.third else None
        return mine is not None and other is not None and mine < other


@dataclass(frozen=True, slots=True)
class NotMeasurable:
    """Differs from the third side by less than the repeats of that side differ among themselves."""

    figure: str

    def asked(self, sides: Sides, unit: str) -> str:
        difference, spread = self._difference(sides), self._spread(sides)
        if difference is None or spread is None or sides.third is None:
            return f"as {sides.third.name}" if sides.third else ""
        return (
            f"not measurable ({difference:+.3f} {unit} beside {sides.third.name}, whose own tries differ by "
            f"{spread:.3f} {unit})"
        )

    def holds(self, sides: Sides) -> bool:
        difference, spread = self._difference(sides), self._spread(sides)
        return difference is not None and spread is not None and difference <= spread

    def _difference(self, sides: Sides) -> float | None:
        mine = sides.ours.median(self.figure)
        other = sides.third.median(self.figure) if sides.third else None
        return None if mine is None or other is None else mine - other

    def _spread(self, sides: Sides) -> float | None:
        found = sides.third.spread(self.figure) if sides.third else None
        return found[1] - found[0] if found else None
