"""Results of a run that never was, for what is done with results."""

from __future__ import annotations

from benchmarks.expectations import Expectation
from benchmarks.measure import Contender, Series, Sides, Try
from benchmarks.results import Compared, Run
from benchmarks.scenarios import Bars, Scenario

FIGURE = "new group"
HUNG = None


def series(name: str, *values: float | None) -> Series:
    """Give tries of one side, of which some hung."""
    return Series(name, tuple(Try({} if value is HUNG else {FIGURE: value}, 0.5) for value in values))


def sides(
    ours: list[float | None],
    theirs: list[float | None],
    third: list[float | None] | None = None,
    other: str = "torchrun",
) -> Sides:
    """Give the tries of all sides."""
    return Sides(
        series("Lattice", *ours),
        series(other, *theirs),
        None if third is None else series("no supervisor", *third),
    )


RUN = Run("2026-01-02", "make bench", 600, ("0.1", "1.9"), ("2 cores <fast>", "Python 3"))
AGAIN = Run("2026-01-03", "python -m benchmarks --only worker", 60, ("0.2", "0.3"), ("2 cores <fast>", "Python 4"))


def compared(
    found: Sides, unit: str = "s", expected: tuple[Expectation, ...] = (), name: str = "worker", run: Run = RUN
) -> Compared:
    """Give a scenario with its results."""
    nobody = Contender("nobody", Try, 1)
    bars = Bars(FIGURE, "Recovering", "A worker dies & returns", "on one node")
    return Compared(
        Scenario(name, f"a {name} dies: to the", (nobody, nobody), expected, unit, cap=45.0, bars=bars), found, run
    )
