"""The page says what was measured, what hung, and what did not hold."""

from __future__ import annotations

import json

from benchmarks import report, results
from benchmarks.expectations import AtMost, LessThanThird, Times
from benchmarks.measure import Series, Sides, Try
from benchmarks.results import Compared
from benchmarks.scenarios import Effort, Scenario, scenarios
from tests.benchmarks.made_up import AGAIN, FIGURE, HUNG, RUN, compared, sides


def test_a_row_has_medians_ranges_and_what_hung() -> None:
    one = compared(sides([0.1, 0.2, 0.3], [2.0, HUNG, 4.0]), expected=(Times(FIGURE, 15),))
    _, _, title, row = report.table([one], [RUN])
    assert title == "| **a worker dies: to the** |  |  |  |  | 0.50 / 0.50 |  |"
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == [
        "… new group",
        "0.20 s [0.10–0.30] ×3",  # noqa: RUF001
        "3.00 s [2.00–4.00] ×2, 1 of 3 none in 45 s",  # noqa: RUF001
        "15.0×",  # noqa: RUF001
        "",
        "",
        "≥ 15×: yes",  # noqa: RUF001
    ]
    assert report.missed([one]) == []


def test_what_did_not_hold_is_named() -> None:
    one = compared(sides([700.0], [900.0], [600.0]), unit="MB", expected=(LessThanThird(FIGURE),))
    row = report.table([one], [RUN])[-1]
    assert row.endswith("| no supervisor: 600 MB [600–600] ×1 |  | < no supervisor: **no** |")  # noqa: RUF001
    assert report.missed([one]) == ["worker"]


def test_the_page_tells_how_busy_the_machine_was() -> None:
    page = report.document([compared(sides([1.0], [2.0]))])
    assert "2026-01-02, `make bench`, 10 minutes, load of the machine 0.1 at the beginning, 1.9 at the end" in page


def test_every_try_is_written_down() -> None:
    (scenario,) = json.loads(results.as_json([compared(sides([0.123456], [HUNG, 3.0]))]))["scenarios"]
    assert [one["figures"] for one in scenario["sides"]["torchrun"]["tries"]] == [{}, {FIGURE: 3.0}]
    assert scenario["sides"]["Lattice"]["medians"] == {FIGURE: 0.1235}


def test_each_other_side_has_a_table_of_its_own() -> None:
    page = report.document([compared(sides([1.0], [2.0])), compared(sides([1.0], [2.0], other="torchrunx"))])
    assert "| what | Lattice | torchrun | ratio |" in page
    assert "| what | Lattice | torchrunx | ratio |" in page


def test_a_later_run_of_some_rows_leaves_the_others_as_they_are() -> None:
    old = [compared(sides([1.0, HUNG], [2.0], [3.0])), compared(sides([7.0], [8.0]), name="node")]
    listed = [one.scenario for one in old]
    kept = results.read(results.as_json(old), listed)
    assert kept == old
    fresh = [compared(sides([0.5], [2.5]), run=AGAIN)]
    both = results.merged(fresh, kept, listed)
    assert both == (fresh[0], old[1])
    page = report.document(both)
    assert "- 2026-01-03, `python -m benchmarks --only worker`, 1 minutes, load of the machine 0.2" in page
    assert "- (2) 2026-01-02, `make bench`, 10 minutes" in page
    assert "| **a worker dies: to the** |" in page
    assert "| (2) **a node dies: to the** |" in page


def test_results_of_what_is_no_longer_measured_are_left_out() -> None:
    old = [compared(sides([1.0], [2.0])), compared(sides([7.0], [8.0]), name="node")]
    assert results.read(results.as_json(old), [old[1].scenario]) == old[1:]


def test_a_figure_may_have_a_unit_of_its_own() -> None:
    scenario = Scenario("logs", "lines: to the", (), (AtMost("lost", 0),), units={"lost": "lines"})
    found = Sides(*(Series(name, (Try({"end": 1.5, "lost": 0}),)) for name in ("Lattice", "torchrunx")))
    end, lost = report.table([Compared(scenario, found, RUN)], [RUN])[-2:]
    assert end.startswith("| … end | 1.50 s [1.50–1.50] ×1 |")  # noqa: RUF001
    assert lost.startswith("| … lost | 0 lines [0–0] ×1 |")  # noqa: RUF001
    assert lost.endswith("| ≤ 0 lines: yes |")


def test_what_cannot_be_run_here_is_listed_all_the_same() -> None:
    everything = scenarios("127.0.0.1:1", Effort())
    assert [one.name for one in everything] == [one.name for one in scenarios("", Effort())]
    assert {one.needs for one in everything} == {"", "etcd"}
    assert len({one.name for one in everything}) == len(everything)
    assert {one.contenders[0].name for one in everything} == {"Lattice"}
