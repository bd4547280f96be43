"""The same promises where nodes wait for their turn to lead, which only large clusters do otherwise."""

from __future__ import annotations

import pytest

from lattice.core import electing
from tests.simulation.replay import replay
from tests.tiers import quick_and_long

CHUNK = 250


@pytest.mark.parametrize("chunk", quick_and_long([0], [1, 2, 3]))
def test_no_schedule_breaks_a_promise_where_all_but_one_wait_for_their_turn(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(electing, "EAGER", 1)
    monkeypatch.setattr(electing, "TURN", 0.7)
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        story = replay(seed)
        assert not story, story
