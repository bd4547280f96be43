"""The page says what was measured, what hung, and what did not hold."""

from __future__ import annotations

import json

from benchmarks import report, results
from benchmarks.expectations import LessThanThird, Times
from benchmarks.scenarios import Effort, scenarios
from tests.benchmarks.made_up import FIGURE, HUNG, compared, run, sides


def test_a_row_has_medians_ranges_and_what_hung() -> None:
    one = compared(sides([0.1, 0.2, 0.3], [2.0, HUNG, 4.0]), expected=(Times(FIGURE, 15),))
    _, _, title, row = report.table([one])
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
    assert report.table([one])[-1].endswith("| no supervisor: 600 MB [600–600] ×1 |  | < no supervisor: **no** |")  # noqa: RUF001
    assert report.missed([one]) == ["worker"]


def test_the_page_tells_how_busy_the_machine_was() -> None:
    page = report.document(run(compared(sides([1.0], [2.0]))))
    assert "2026-01-02, `make bench`, 10 minutes, load of the machine 0.1 at the beginning, 1.9 at the end" in page


def test_every_try_is_written_down() -> None:
    (scenario,) = json.loads(results.as_json(run(compared(sides([0.123456], [HUNG, 3.0])))))["scenarios"]
    assert [one["figures"] for one in scenario["sides"]["torchrun"]["tries"]] == [{}, {FIGURE: 3.0}]
    assert scenario["sides"]["Lattice"]["medians"] == {FIGURE: 0.1235}


def test_what_needs_etcd_is_left_out_without_one() -> None:
    everything = scenarios("127.0.0.1:1", Effort())
    assert {one.name for one in everything} - {one.name for one in scenarios("", Effort())} == {
        one.name for one in everything if one.on_etcd
    }
    assert len({one.name for one in everything}) == len(everything)
    assert {one.contenders[0].name for one in everything} == {"Lattice"}
