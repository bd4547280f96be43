"""
Learner and workers as programs, for tests that kill them: ``python -m tests.rl.race learner|worker JSON``.

An episode's observations say which simulator played it and the how-manieth it was, and the algorithm remembers all that
it was trained on: so what was lost, or trained on twice, can be told from the learner's own state.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lattice.rl import Goal, Learner, LearnerSettings, OnPolicyQueue, Worker, WorkerSettings
from lattice.rl.interfaces import Array, Arrays

KEY = "of the tests, and long enough"
STEPS = 5


class Numbered:
    """An environment whose episodes can be told apart."""

    def __init__(self, pause: float = 0.001) -> None:
        self.simulator = secrets.randbits(30)
        self.episode, self.at, self.pause = 0, 0, pause

    def reset(self, *, seed: int | None = None) -> tuple[Array, dict[str, Any]]:
        self.episode, self.at = self.episode + 1, 0
        return np.array([self.simulator, self.episode], np.int64), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.at += 1
        time.sleep(self.pause)
        return np.array([self.simulator, self.episode], np.int64), 1.0, self.at >= STEPS, False, {}

    def close(self) -> None:
        pass


class Same:
    """A policy that does always the same."""

    def act(self, observation: Array, explore: bool) -> int:
        return 0

    def load(self, parameters: Arrays) -> None:
        assert parameters["updates"].shape == (1,)


class Remembering:
    """An algorithm that remembers what it was trained on."""

    def __init__(self) -> None:
        self.seen = np.zeros((0, 2), np.int64)

    def update(self, batch: Arrays) -> Mapping[str, float]:
        self.seen = np.concatenate([self.seen, batch["observation"][batch["first"]]])
        return {"seen": float(len(self.seen))}

    def parameters(self) -> Arrays:
        return {"updates": np.array([float(len(self.seen))], np.float32)}

    def state(self) -> Mapping[str, Any]:
        return {"seen": self.seen}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.seen = np.array(state["seen"])


def learn(
    port: int, folder: str, updates: int, batch: int = 2, every: float = 0.3, staleness: int | None = None
) -> None:
    """Learn, and write down what was seen."""
    algorithm = Remembering()
    settings = LearnerSettings(
        results=folder, key=KEY, host="127.0.0.1", port=port, checkpoint_every=every, metrics_every=0.5,
        staleness=staleness,
    )  # fmt: skip
    learned = Learner(algorithm, OnPolicyQueue(batch), Goal(updates=updates), settings).run()
    told = {"seen": algorithm.seen.tolist(), "lives": learned.lives, "updates": learned.updates, "best": learned.best}
    Path(folder, "seen.json").write_text(json.dumps({**told, "finished": learned.finished}))


def work(port: int, folder: str, limit: int = 10_000, farewell: float = 5.0) -> None:
    """Play; a file tells that from now on SIGTERM is heard."""
    # Before and after its work: a test may ask one to stop that is just about to end by itself.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def environment() -> Numbered:
        Path(folder, f"playing-{os.getppid()}").touch()
        return Numbered()

    settings = WorkerSettings(
        address=f"127.0.0.1:{port}", key=KEY, patience=1.0, limit=limit, credit=min(limit, 4), farewell=farewell
    )
    worked = Worker(environment, Same, settings).run()
    Path(folder, f"worked-{os.getpid()}.json").write_text(json.dumps([worked.reason, worked.untaken]))


def start(role: str, **settings: Any) -> subprocess.Popen[bytes]:
    """Start one of them as a process."""
    line = [sys.executable, "-m", "tests.rl.race", role, json.dumps(settings)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.Popen(line, env=environ, stdin=subprocess.DEVNULL)


def metrics(folder: Path) -> list[dict[str, Any]]:
    """Read the lines of metrics so far."""
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rewards(folder: Path) -> list[dict[str, Any]]:
    """Read all episodes that were taken in."""
    found = sorted((folder / "rewards").glob("[0-9]*.jsonl"))  # a learner that was killed leaves half a file, .new-*
    return [json.loads(line) for path in found for line in path.read_text().splitlines()]


if __name__ == "__main__":
    if sys.argv[1] == "learner":
        learn(**json.loads(sys.argv[2]))
    else:
        work(**json.loads(sys.argv[2]))
