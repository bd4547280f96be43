"""An expectation holds exactly when the figures say so."""

from __future__ import annotations

import pytest

from benchmarks.expectations import AtMost, Expectation, LessThanThird, NotMeasurable, Times
from benchmarks.measure import Sides
from tests.benchmarks.made_up import FIGURE, HUNG, sides

CASES: list[tuple[Expectation, Sides, bool]] = [
    (Times(FIGURE, 10), sides([1.0, 1.0, 9.0], [10.0, 10.0, 1.0]), True),
    (Times(FIGURE, 10), sides([1.0], [9.9]), False),
    (Times(FIGURE, 10), sides([1.0], [HUNG, HUNG]), True),
    (Times(FIGURE, 10), sides([HUNG], [HUNG]), False),
    (AtMost(FIGURE, 60), sides([60.0], [1.0]), True),
    (AtMost(FIGURE, 60), sides([60.1], [100.0]), False),
    (AtMost(FIGURE, 60), sides([HUNG], [100.0]), False),
    (LessThanThird(FIGURE), sides([5.0], [1.0], [6.0]), True),
    (LessThanThird(FIGURE), sides([6.0], [9.0], [6.0]), False),
    (LessThanThird(FIGURE), sides([6.0], [9.0]), False),
    (NotMeasurable(FIGURE), sides([1.2], [9.0], [1.0, 1.1, 1.3]), True),
    (NotMeasurable(FIGURE), sides([0.5], [9.0], [1.0, 1.1, 1.3]), True),
    (NotMeasurable(FIGURE), sides([1.5], [1.0], [1.0, 1.1, 1.3]), False),
    (NotMeasurable(FIGURE), sides([1.5], [1.0]), False),
]


@pytest.mark.parametrize(("expectation", "found", "holds"), CASES)
def test_holds(expectation: Expectation, found: Sides, holds: bool) -> None:
    assert expectation.holds(found) is holds
    assert isinstance(expectation.asked(found, "s"), str)


def test_what_is_not_measurable_is_said_in_figures() -> None:
    said = NotMeasurable(FIGURE).asked(sides([1.25], [9.0], [1.0, 1.1, 1.3]), "ms")
    assert said == "not measurable (+0.150 ms beside no supervisor, whose own tries differ by 0.300 ms)"
