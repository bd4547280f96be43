"""The chart is to scale, claims no more than was measured, and is drawn from the figures in the repository."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks import chart
from benchmarks.measure import Series, Sides, Try
from benchmarks.results import as_json
from tests.benchmarks.made_up import AGAIN, HUNG, compared, series, sides

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*found: Sides, unit: str = "s") -> tuple[list[tuple[str, float]], list[str]]:
    """Draw, and give the bars with their lengths, and all texts."""
    picture = ElementTree.fromstring(chart.draw(as_json([compared(one, unit) for one in found])))
    rects = [one for one in picture.iter(f"{SVG}rect") if one.get("height") == str(chart.THICK)][2:]
    bars = [(one.get("class", ""), float(one.get("width", ""))) for one in rects]
    return bars, [text.text or "" for text in picture.iter(f"{SVG}text")]


def test_the_bars_of_a_row_are_to_scale() -> None:
    bars, texts = drawn(sides([0.5], [5.0, HUNG]), sides([3.0], [2.0]))
    assert bars == [
        ("ours", chart.LONGEST / 10),
        ("theirs", chart.LONGEST),
        ("ours", chart.LONGEST),
        ("theirs", pytest.approx(chart.LONGEST * 2 / 3, abs=0.1)),
    ]
    assert {"5.00 s, 1 of 2 hung", "10× faster", "1.5× slower", "2 cores <fast> · Python 3"} <= set(texts)  # noqa: RUF001


@pytest.mark.parametrize(
    ("found", "unit", "gain"),
    [
        (sides([1.0], [19.99]), "s", "19× faster"),  # noqa: RUF001
        (sides([1.0], [2.39]), "MB", "2.3× less"),  # noqa: RUF001
        (sides([2.0], [HUNG]), "s", "> 22× faster"),  # noqa: RUF001
        (sides([1.02], [1.0]), "ms", "the same"),
    ],
)
def test_no_more_is_claimed_than_was_measured(found: Sides, unit: str, gain: str) -> None:
    assert gain in drawn(found, unit=unit)[1]


def test_a_side_that_never_ended_is_as_long_as_the_time_it_was_given() -> None:
    bars, texts = drawn(sides([9.0], [HUNG]))
    assert bars == [("ours", chart.LONGEST / 5), ("theirs", chart.LONGEST)]
    assert "nothing in 45 s" in texts


def test_a_side_that_gave_up_is_not_called_slower() -> None:
    given_up = Sides(series("Lattice", 1.0), Series("torchrun", (Try({}, None, gave_up=True), Try())))
    assert {"gave up", "Lattice alone"} <= set(drawn(given_up)[1])


def test_each_side_is_called_by_its_name_and_each_run_is_told_of() -> None:
    rows = [
        compared(sides([1.0], [2.0])),
        compared(sides([1.0], [3.0], other="torchrunx"), name="launch", run=AGAIN),
    ]
    picture = chart.draw(as_json(rows))
    assert "torchrun 2.00 s, 2.0× faster" in picture  # noqa: RUF001
    assert "torchrunx 3.00 s, 3.0× faster" in picture  # noqa: RUF001
    assert "2026-01-02, make bench, load 0.1" in picture
    assert "2026-01-03, python -m benchmarks --only worker, load 0.2" in picture


def test_the_picture_in_the_documentation_is_of_the_figures_that_are_here() -> None:
    assert chart.PICTURE.read_text() == chart.draw(chart.FIGURES.read_text()), "run: python -m benchmarks.chart"
