"""What the board tells of a round."""

from __future__ import annotations

from lattice.core.board import Line
from lattice.core.pulse import PATIENCE, Habits, Up, hung, learn, signs, slowest, steps, up

NOBODY: frozenset[int] = frozenset()
BOTH = frozenset({0, 1})


def test_warm_workers_are_up_when_all_have_their_group() -> None:
    lines = {0: Line(entered=10.1, grouped=10.5), 1: Line(entered=10.2)}
    assert up(lines, BOTH, Habits(), 10, BOTH, True, 10.6) is None
    lines[1] = Line(entered=10.2, grouped=10.7)
    assert up(lines, BOTH, Habits(), 10, BOTH, True, 10.8) == Up(10.2, 10.7, "group")


def test_workers_that_never_form_a_group_are_up_when_their_script_begins() -> None:
    lines = {0: Line(entered=10.1)}
    assert up(lines, {0}, Habits(), 10, {0}, True, 10 + PATIENCE - 1) is None, "it may still form one"
    assert up(lines, {0}, Habits(), 10, {0}, True, 10 + PATIENCE) == Up(10.1, 10.1, "")
    assert up(lines, {0}, Habits(), 10, {0}, False, 10.2) == Up(10.1, 10.1, ""), "no framework that is seen to"
    assert up({0: Line()}, {0}, Habits(), 10, {0}, False, 10.2) is None, "its script has not begun"


def test_fresh_interpreters_tell_only_by_heartbeats() -> None:
    assert up({0: Line()}, {0}, Habits(), 10, NOBODY, True, 10.2) == Up(None, 10, "")
    known = learn(Habits(), {0: Line(first_at=4, beat_at=5, beats=2)}, 1)
    assert up({0: Line()}, {0}, known, 10, NOBODY, True, 1000) is None
    assert up({0: Line(first_at=12, beats=1)}, {0}, known, 10, NOBODY, True, 12) == Up(None, 12, "first step")


def test_who_has_ended_is_not_waited_for() -> None:
    known = Habits(BOTH, BOTH)
    lines = {0: Line(entered=10.1), 1: Line(entered=10.1, grouped=10.3)}
    assert up(lines, {1}, known, 10, BOTH, True, 10.4) == Up(10.1, 10.3, "group")


def test_only_those_who_ever_told_are_expected_to() -> None:
    lines = {0: Line(beat_at=20, beats=3), 1: Line()}
    assert list(signs(lines, BOTH, Habits(), 10, 5)) == [(25, 0)]
    assert list(signs(lines, {1}, Habits(), 10, 5)) == []
    assert list(signs(lines, BOTH, Habits(beating=BOTH, longest_start=7), 10, 5)) == [(25, 0), (22, 1)]


def test_a_beat_of_before_the_floor_does_not_count() -> None:
    assert list(signs({0: Line(beat_at=20, beats=3)}, {0}, Habits(), 100, 5)) == [(105, 0)]


def test_the_one_that_came_least_far_is_the_one_that_hangs() -> None:
    lines = {0: Line(step=8, beat_at=3), 1: Line(step=7, beat_at=4), 2: Line(step=8, beat_at=2)}
    assert hung(lines, {0, 1, 2}) == 1
    assert hung(lines, {0, 2}) == 2


def test_habits_are_kept() -> None:
    first = learn(Habits(), {0: Line(first_at=4, beats=1), 1: Line(grouped=3)}, 1)
    assert first == Habits(frozenset({1}), frozenset({0}), 3)
    assert learn(first, {0: Line(), 1: Line()}, 10) == first


def test_the_sum_of_a_round() -> None:
    lines = {
        0: Line(first_at=1, beat_at=3, beats=5, first_step=10, step=14, longest=0.9),
        1: Line(first_at=1, beat_at=5, beats=5, first_step=10, step=13),
        2: Line(),
    }
    found = steps(lines)
    assert (found.first, found.last, found.pace) == (10, 14, 0.75)
    pace = slowest(lines, 4, "h1")
    assert pace is not None and (pace.rank, pace.step) == (5, 1.0)
    assert slowest({0: Line()}, 0, "h1") is None
