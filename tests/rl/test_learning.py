"""Reward really rises: the examples' own algorithms, small problems, fixed seeds, generous bounds."""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lattice.rl import Acted, Goal, Learner, LearnerSettings, OnPolicyQueue, Worker, WorkerSettings
from lattice.rl.interfaces import Array, Arrays
from lattice.rl.places import Place
from lattice.rl.report import read_rewards
from tests.jobs.places import local
from tests.rl import race
from tests.waiting import eventually, patience

KEY = "of the tests, and long enough"
EXAMPLES = Path(__file__).parents[2] / "examples" / "rl"


class Bandit:
    """Four places; in each another of four actions is right. An episode is eight of them."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(5)
        self.at, self.left = 0, 0

    def _seen(self) -> Array:
        seen: Array = np.eye(4, dtype=np.float32)[self.at]
        return seen

    def reset(self, *, seed: int | None = None) -> tuple[Array, dict[str, Any]]:
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.at, self.left = int(self.random.integers(4)), 8
        return self._seen(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        reward = float(action == (self.at + 1) % 4)
        self.at, self.left = int(self.random.integers(4)), self.left - 1
        return self._seen(), reward, self.left == 0, False, {}

    def close(self) -> None:
        pass


class Softmax:
    """A table of preferences."""

    def __init__(self) -> None:
        self.table = np.zeros((4, 4), np.float32)
        self.random = np.random.default_rng(6)

    def load(self, parameters: Arrays) -> None:
        self.table = parameters["table"]

    def act(self, observation: Array, explore: bool) -> Acted:
        odds = np.exp(observation @ self.table)
        odds /= odds.sum()
        chosen = (
            self.random.choice(4, p=odds.astype(np.float64) / odds.sum(dtype=np.float64)) if explore else odds.argmax()
        )
        return Acted(int(chosen), {"odds": odds[chosen]})


class Reinforce:
    """Policy gradients on that table, each trajectory once."""

    def __init__(self) -> None:
        self.table = np.zeros((4, 4), np.float32)

    def update(self, batch: Arrays) -> Mapping[str, float]:
        places, actions = batch["observation"].argmax(1), batch["action"]
        odds = np.exp(self.table[places])
        odds /= odds.sum(1, keepdims=True)
        gradient = np.eye(4, dtype=np.float32)[actions] - odds
        advantage = batch["reward"] - 0.25
        np.add.at(self.table, places, 0.5 * gradient * advantage[:, None] / len(actions) * 4)
        return {"odds": float(batch["odds"].mean())}

    def parameters(self) -> Arrays:
        return {"table": self.table}

    def state(self) -> Mapping[str, Any]:
        return {"table": self.table}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.table = np.array(state["table"])


def test_on_policy_learning_in_one_process(tmp_path: Path) -> None:
    settings = LearnerSettings(
        results=tmp_path, key=KEY, host="127.0.0.1", port=0, metrics_every=0.5, evaluate_every=800, staleness=50
    )
    learner = Learner(Reinforce(), OnPolicyQueue(8), Goal(env_steps=8000, seconds=150.0), settings)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(learner.run()))
    thread.start()
    worker = Worker(Bandit, Softmax, WorkerSettings(address=f"127.0.0.1:{learner.port}", key=KEY, seed=1))
    worked = worker.run()
    thread.join(patience(30))
    (learned,) = found
    assert (learned.finished, learned.best, learned.stale) == (True, 8.0, 0), learned
    assert learned.env_steps >= 8000
    assert (worked.reason, worked.faults) == (learned.reason, {"crash": 0, "hang": 0, "nan": 0})
    rewards = [row["reward"] for row in read_rewards(Place(tmp_path)) if row["kind"] == "training"]
    assert statistics.fmean(rewards[:50]) < 3.5 < 6 < statistics.fmean(rewards[-50:])


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("name", "reward", "gain"),
    [
        ("dqn", 150, 20.0),  # CartPole: 9 to 500, about 20 at random
        ("sac", -400, 300.0),  # Pendulum: -1600 to 0, about -1200 at random
    ],
)
def test_the_examples_learn_although_learner_and_worker_are_killed(
    name: str, reward: float, gain: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("gymnasium")
    results = tmp_path / "results"
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(root / "src"), *filter(None, sys.path))))
    file = tmp_path / "job.yaml"
    text = (EXAMPLES / f"{name}.yaml").read_text().replace("folder: .", f"folder: {EXAMPLES}")
    file.write_text(
        re.sub(r"env: \{RESULTS.*", f"env: {{RESULTS: {results}, REWARD: {reward}, SECONDS: {patience(400):g}}}", text)
    )
    with local(tmp_path) as place:
        assert place.submit(name, "--file", str(file), size=0).code == 0
        try:
            # Once something is in a checkpoint, both are killed.
            eventually(lambda: (results / "rewards").exists() and list((results / "rewards").iterdir()), within=90)
            for node in (0, 1):  # the worker that sent something may have been another one
                pid = eventually(lambda node=node: worker_of(place.home, name, node), within=60)  # type: ignore[misc]
                os.kill(pid, signal.SIGKILL)
            assert place.run("wait", "--timeout", f"{patience(450):g}", name).code == 0, place.run("logs", name).out
        finally:
            place.run("kill", name)
        eventually(lambda: not place.running(), within=60)
    rows = race.metrics(results)
    assert rows[-1]["life"] == 2
    assert rows[-1]["reward_best"] >= reward, rows[-1]
    training = [row["reward"] for row in race.rewards(results) if row["kind"] == "training"]
    few = min(50, len(training) // 4)
    assert statistics.fmean(training[-few:]) > statistics.fmean(training[:few]) + gain, "reward rises"


def worker_of(home: Path, name: str, node: int) -> int:
    """Find the worker of a job's node in the journal of its agent; 0 if it was not started yet."""
    found = 0
    for journal in (home / "nodes").glob(f"{name}-*/{node}/journal.jsonl"):
        lines = [json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}")]
        found = next((line["pids"][0] for line in reversed(lines) if line["event"] == "workers started"), 0)
    return found
