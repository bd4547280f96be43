from __future__ import annotations

from typing import Any

import pytest

from lattice.checkpoint.history import Entry, History, Opened, Saved
from lattice.checkpoint.source import in_memory


def held(**facts: Any) -> dict[str, Any]:
    known = {"folder": "f", "step": 5, "world": 2, "token": "mine", "run": "run", "round": 2, "ranks": [0, 1]}
    return {**known, "complete": False, "refused": False, "opened": False, **facts}


def logged(*entries: Entry) -> History:
    return History(dict(enumerate(entries, 1)))


MINE, BEFORE, AFTER = (Opened(token, "run", number, 0.0) for token, number in (("mine", 2), ("old", 1), ("new", 3)))
HEIR = Opened("heir", "run", 3, 0.0, "f")
ANOTHER = Opened("x", "another run", 9, 0.0)


@pytest.mark.parametrize(
    ("found", "now", "taken"),
    [
        (held(), logged(), True),
        (held(ranks=[0]), logged(), False),
        (held(opened=True), logged(MINE), True),
        (held(opened=True), logged(MINE, ANOTHER), False),
        (held(opened=True), logged(MINE, AFTER), False),
        (held(opened=True), logged(MINE, HEIR), True),
        (held(opened=True), logged(MINE, HEIR, Saved("heir", 6, "g", {}, 0.0)), False),
        (held(refused=True), logged(BEFORE), False),
        (held(), logged(BEFORE), True),
        (held(), logged(ANOTHER), True),
        (held(), logged(AFTER), False),
        (held(), logged(MINE, Saved("mine", 5, "f", {}, 0.0), AFTER), True),
        (held(), logged(MINE, Saved("mine", 5, "f", {}, 0.0), Saved("mine", 6, "g", {}, 0.0)), False),
    ],
)
def test_what_is_in_memory_is_taken_unless_somebody_went_on(found: dict[str, Any], now: History, taken: bool) -> None:
    assert (in_memory([found], now) is not None) == taken
