"""Ten thousand clusters, each with its own faults: what must never happen does not, and all come to an end."""

from __future__ import annotations

import pytest

from tests.simulation.replay import replay
from tests.tiers import quick_and_long

CHUNK, CHUNKS = 250, 40
QUICK = 4
"""chunks that run in `make test`; the lab runs all of them"""


@pytest.mark.parametrize("chunk", quick_and_long(range(QUICK), range(QUICK, CHUNKS)))
def test_no_schedule_breaks_a_promise(chunk: int, one_seed: int | None) -> None:
    first = chunk * CHUNK
    seeds = range(first, first + CHUNK)
    if one_seed is not None:
        if one_seed not in seeds and not (chunk == 0 and one_seed >= CHUNK * CHUNKS):
            pytest.skip("another seed was asked for")
        seeds = range(one_seed, one_seed + 1)
    for seed in seeds:
        story = replay(seed)
        assert not story, story


def test_a_seed_means_one_schedule(one_seed: int | None) -> None:
    from tests.simulation.cluster import Cluster
    from tests.simulation.trace import render

    first, second = Cluster(one_seed or 7), Cluster(one_seed or 7)
    first.run()
    second.run()
    assert render(first.world.trace) == render(second.world.trace)
