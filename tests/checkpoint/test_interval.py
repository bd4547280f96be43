from __future__ import annotations

import pytest

from lattice.checkpoint.history import Opened, Saved
from lattice.checkpoint.interval import advice


def opened(restarts: int, hours: float) -> Opened:
    return Opened("t", "run", 1, hours * 3600, "", restarts, 0.0)


def saves(cost: float, *, seconds: float = 10.0, steps: int = 100) -> list[Saved]:
    return [Saved("t", steps * n, f"f{n}", {}, seconds * n, None, cost) for n in (3, 2, 1)]


def test_young_and_daly() -> None:
    found = advice(opened(4, 8.0), saves(0.5))
    assert found is not None
    assert found.interval == pytest.approx((2 * 0.5 * 7200) ** 0.5)
    assert found.steps == round(found.interval * 10)
    assert str(found) == (
        "saving every 84.9 s (about 849 steps) would lose least: a save costs 0.5 s, something fails every 2 h"
    )


def test_nothing_is_said_while_too_little_is_known() -> None:
    assert advice(opened(0, 8.0), saves(0.5)) is None
    assert advice(opened(1, 8.0), []) is None
    assert advice(opened(1, 0.0), saves(0.5)) is None
    alone = advice(opened(1, 1.0), saves(0.002)[:1])
    assert alone is not None and alone.steps == 0 and "a save costs 2 ms" in str(alone)
