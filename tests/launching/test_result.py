"""Results by rank and by host."""

from __future__ import annotations

import pytest

from lattice.launching.result import LaunchResult


def test_results_are_found_by_rank_and_by_host() -> None:
    result = LaunchResult([("a", ["a0", "a1"]), ("b", ["b0"])])
    assert [result.rank(number) for number in range(3)] == list(result) == result.all() == ["a0", "a1", "b0"]
    assert result.index("a", 1) == "a1"
    assert result.index(hostname="b", local_rank=0) == "b0"
    assert result.results == {"a": ["a0", "a1"], "b": ["b0"]}
    assert len(result) == 3


def test_a_host_that_was_given_twice_keeps_both() -> None:
    result = LaunchResult([("a", [1, 2]), ("b", [3]), ("a", [4])])
    assert result.results == {"a": [1, 2, 4], "b": [3]}
    assert result.index("a", 2) == 4
    assert result.all() == [1, 2, 3, 4]


def test_who_did_not_take_part_is_said() -> None:
    result = LaunchResult([("a", [1])])
    with pytest.raises(IndexError, match="no rank 1: 1 workers"):
        result.rank(1)
    with pytest.raises(IndexError, match="no rank -1"):
        result.rank(-1)
    with pytest.raises(KeyError, match="'b' took no part: 'a' did"):
        result.index("b", 0)
    with pytest.raises(IndexError, match="no local rank 1 on 'a': it had 1 workers"):
        result.index("a", 1)
