"""The benchmark of learner and workers measures, and says what did not hold."""

from __future__ import annotations

import pytest

from benchmarks import rl


def test_the_table_says_what_was_expected_and_whether_it_held() -> None:
    rows = [rl.Row("one", "5", "1 µs"), rl.Row("two", "3", "2 µs", "> 4", False), rl.Row("three", "5", "", "> 4")]
    text = rl.document(rows, 3, ("0.1", "0.2"), 90.0)
    assert "| one | 5 | 1 µs |  |" in text
    assert "| two | 3 | 2 µs | > 4: **no** |" in text
    assert "| three | 5 |  | > 4: yes |" in text
    assert "3 tries each" in text


def test_it_really_measures() -> None:
    found = rl.measured("learner", environment="trivial", workers=1, steps=10_000)
    assert found["steps"] == pytest.approx(9000, abs=400)
    assert found["steps"] / found["seconds"] > rl.PUBLISHED
    assert found["megabytes"] > 0
    assert rl.measured("bare", environment="trivial", steps=1000)["steps"] == 1000
    assert rl.measured("alone", environment="trivial", steps=1000)["steps"] == 1000
