from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from lattice.checkpoint.history import (
    Entry,
    History,
    Opened,
    Policy,
    Saved,
    decoded,
    encoded,
    folder_of,
    history,
    token_of,
)


def opened(token: str, round: int = 1, run: str = "run") -> Opened:
    return Opened(token, run, round, 10.0, "", 0, 10.0)


def saved(token: str, step: int, metric: float | None = None) -> Saved:
    return Saved(token, step, folder_of(step, token, 0), {"a": (1, "x")}, 20.0, metric, 0.1)


def logged(*entries: Entry) -> History:
    return History(dict(enumerate(entries, 1)))


def test_entries_survive_being_written() -> None:
    for entry in (opened("a"), saved("a", 3, 0.5)):
        assert decoded(encoded(entry)) == entry
    assert decoded(b"{}") is None and decoded(b"nonsense") is None


def test_what_cannot_be_read_keeps_others_from_going_on() -> None:
    log = history([(1, encoded(opened("a"))), (2, b"of a later version")])
    assert log.refusal(saved("a", 1)) and log.next == 3


def test_who_opened_last_may_add() -> None:
    log = logged(opened("a", 1), saved("a", 5))
    assert not log.refusal(saved("a", 6))
    assert not log.refusal(opened("b", 2))
    log = logged(opened("a", 1), saved("a", 5), opened("b", 2))
    assert "round 2 of run 'run' has taken over" in log.refusal(saved("a", 6))
    assert not log.refusal(saved("b", 1)), "which may be behind: it went back"
    assert "round 2" in log.refusal(opened("c", 1)), "a round that is over does not come back"
    assert not log.refusal(opened("c", 2)), "another attempt of the same round"
    assert not log.refusal(opened("c", 1, run="another"))
    assert logged().refusal(saved("a", 1)) and not logged().refusal(opened("a"))


def test_the_newest_is_the_last_that_was_added() -> None:
    log = logged(opened("a"), saved("a", 50), opened("b", 2), saved("b", 10))
    assert [entry.step for entry in log.saved] == [10, 50]


def test_what_is_kept() -> None:
    log = logged(opened("a"), *(saved("a", step, metric) for step, metric in ((1, 9.0), (2, 1.0), (3, 5.0), (4, 2.0))))

    def left(policy: Policy) -> list[int]:
        gone = log.unwanted(policy)
        return sorted(entry.step for number, entry in log.entries.items() if number not in gone and entry in log.saved)

    assert left(Policy(last=2)) == [3, 4]
    assert left(Policy(last=1, best=1)) == [1, 4]
    assert left(Policy(last=1, best=2, lowest=True)) == [2, 4]
    assert left(Policy(last=1, every=2)) == [2, 4]


def test_what_is_not_a_number_is_never_the_best() -> None:
    metrics = (1.0, math.nan, 9.0, math.nan, 5.0, None, 2.0)
    log = logged(opened("a"), *(saved("a", step, metric) for step, metric in enumerate(metrics, 1)))
    gone = log.unwanted(Policy(last=1, best=2)).values()
    assert [entry.step for entry in reversed(log.saved) if entry not in gone] == [3, 5, 7]
    gone = log.unwanted(Policy(last=1, best=5, lowest=True)).values()
    assert [entry.step for entry in reversed(log.saved) if entry not in gone] == [1, 3, 5, 7]


def test_an_opening_stays_while_it_is_the_last() -> None:
    log = logged(opened("a"), saved("a", 1), opened("b", 2), saved("b", 2), saved("b", 3))
    assert sorted(log.unwanted(Policy(last=1))) == [1, 2, 4]
    assert sorted(logged(opened("a"), saved("a", 1), opened("b", 2)).unwanted(Policy(last=1))) == [1]


def test_folders_that_nobody_will_complete() -> None:
    log = logged(opened("a"), saved("a", 1), opened("b", 2), saved("b", 2))
    folders = [folder_of(1, "a", 0), folder_of(9, "a", 0), folder_of(3, "b", 1), "log", "notes"]
    assert log.stray(folders, "b") == [folder_of(9, "a", 0)]
    assert log.stray(folders, "a") == [], "who was overtaken removes nothing"
    assert token_of(folder_of(3, "b", 1)) == "b"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2))))
def test_a_round_that_was_overtaken_never_adds_anything_again(moves: list[tuple[bool, int]]) -> None:
    log, newest = History(), -1
    for step, (opens, writer) in enumerate(moves):
        entry: Entry = opened(f"t{writer}", writer) if opens else saved(f"t{writer}", step)
        if not log.refusal(entry):
            assert writer >= newest
            newest = max(newest, writer)
            log = History({**log.entries, log.next: entry})
