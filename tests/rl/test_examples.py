"""The examples' algorithms go on from a checkpoint as if nothing had happened."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lattice.checkpoint import Checkpointer

EXAMPLES = Path(__file__).parents[2] / "examples" / "rl"
SIZES = {
    "dqn_learner.DoubleDQN": (4, np.zeros(8, np.int64)),
    "sac_learner.SoftActorCritic": (3, np.zeros((8, 1), np.float32)),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_state_survives_a_checkpoint(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    module, _, kind = name.partition(".")
    made: Any = getattr(__import__(module), kind)
    width, action = SIZES[name]
    chance = np.random.default_rng(0)
    batch = {
        "observation": chance.random((8, width), np.float32),
        "next_observation": chance.random((8, width), np.float32),
        "action": action,
        "reward": chance.random(8, np.float32),
        "terminated": np.zeros(8, np.bool_),
    }
    one, other = made(), made(seed=5)
    one.update(batch)
    with Checkpointer(tmp_path) as saved:
        saved.save(1, {"algorithm": one.state()})
        saved.wait()
        found: dict[str, Any] = {}
        state, _ = saved.restore(found)
        other.load_state(state["algorithm"])
    for algorithm in (one, other):
        torch.manual_seed(3)
        algorithm.update(batch)
    for parameter, value in one.parameters().items():
        np.testing.assert_array_equal(value, other.parameters()[parameter])
