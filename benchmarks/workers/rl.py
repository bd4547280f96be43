"""
A learner and its workers, measured from the inside: ``python -m benchmarks.workers.rl ROLE JSON``.

The learner starts the workers, so that all are of one session, whose processor time it can read.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lattice.rl import Goal, Learner, LearnerSettings, ReplayBuffer, Trajectory, Worker, WorkerSettings
from lattice.rl.interfaces import Array, Arrays, Environment
from lattice.rl.rollout import Play, _Player

TICKS = os.sysconf("SC_CLK_TCK")


class Trivial:
    """Costs next to nothing: 200 steps of four numbers."""

    def __init__(self, shape: tuple[int, ...] = (4,), kind: str = "float32", length: int = 200) -> None:
        self.seen = np.zeros(shape, kind)
        self.length, self.at = length, 0

    def reset(self, *, seed: int | None = None) -> tuple[Array, dict[str, Any]]:
        self.at = 0
        return self.seen, {}

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.at += 1
        return self.seen, 1.0, False, self.at >= self.length, {}

    def close(self) -> None:
        pass


def pendulum() -> Environment:
    import gymnasium

    made: Environment = gymnasium.make("Pendulum-v1")
    return made


ENVIRONMENTS: dict[str, Callable[[], Environment]] = {
    "trivial": Trivial,
    "images": lambda: Trivial((84, 84, 4), "uint8", 100),
    "pendulum": pendulum,
}


class Still:
    """Always the same action."""

    def __init__(self) -> None:
        self.action = np.zeros(1, np.float32)

    def act(self, observation: Array, explore: bool) -> Array:
        return self.action

    def load(self, parameters: Arrays) -> None:
        pass


class Costly:
    """An algorithm whose update takes some time, and learns nothing."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.weights = np.zeros(10_000, np.float32)

    def update(self, batch: Arrays) -> Mapping[str, float]:
        until = time.perf_counter() + self.seconds
        while time.perf_counter() < until:
            pass
        return {}

    def parameters(self) -> Arrays:
        return {"weights": self.weights}

    def state(self) -> Mapping[str, Any]:
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        pass


class Measured(ReplayBuffer):
    """Notes when the first of so many steps came in that everybody is up."""

    def __init__(self, capacity: int, batch_size: int, after: int) -> None:
        super().__init__(capacity, batch_size)
        self.after, self.steps, self.size = after, 0, 0
        self.began: tuple[float, float, int, int] | None = None
        self.up: Callable[[], None] = lambda: None
        """called at that moment"""

    def add(self, trajectory: Trajectory) -> None:
        super().add(trajectory)
        self.steps += trajectory.steps
        self.size += trajectory.size
        if self.began is None and self.steps >= self.after:
            self.began = (time.perf_counter(), cpu_of_session(), self.steps, self.size)
            self.up()


def cpu_of_session() -> float:
    """Give the processor seconds of all processes of this session, ended children that were waited for included."""
    session, total = os.getsid(0), 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            total += sum(map(int, fields[11:15]))
    return total / TICKS


def learner(environment: str, workers: int, steps: int, update: float = 0.0, ratio: float | None = 0.0) -> None:
    """Learn for so many steps, and print what was measured."""
    key = secrets.token_hex(16)
    buffer = Measured(2000 if environment == "images" else 50_000, 32, steps // 10)
    algorithm = Costly(update)
    settings = LearnerSettings(
        key=key, host="127.0.0.1", port=0, updates_per_step=ratio, publish_every=10, metrics_every=1e9
    )
    made = Learner(algorithm, buffer, Goal(env_steps=steps), settings)
    line = [sys.executable, "-m", "benchmarks.workers.rl", "worker"]
    told = json.dumps({"environment": environment, "address": f"127.0.0.1:{made.port}"})
    environ = {**os.environ, "LATTICE_RL_KEY": key, "OPENBLAS_NUM_THREADS": "1"}
    started = [subprocess.Popen([*line, told], env=environ, stdout=subprocess.DEVNULL) for _ in range(workers)]
    updating = [0.0]
    buffer.up = lambda: updating.append(made._window.updating)
    ending = made._end  # the clock stops at the goal, before the farewell

    def end(reason: str) -> Any:
        assert buffer.began is not None
        began, cpu, steps_before, size = buffer.began
        seconds = time.perf_counter() - began
        counted = buffer.steps - steps_before
        found = {
            "seconds": seconds,
            "cpu": cpu_of_session() - cpu,
            "steps": counted,
            "megabytes": (buffer.size - size) / 1e6,
            "utilisation": (made._window.updating - updating[-1]) / seconds,
        }
        print(json.dumps(found), flush=True)
        return ending(reason)

    made._end = end  # type: ignore[method-assign]
    made.run()
    for process in started:
        process.wait(30)


def worker(environment: str, address: str) -> None:
    """Play for the learner."""
    Worker(ENVIRONMENTS[environment], Still, WorkerSettings(address=address)).run()


def bare(environment: str, steps: int) -> None:
    """Play the same without anybody else, and print how long it took."""
    made, policy = ENVIRONMENTS[environment](), Still()
    seen, _ = made.reset(seed=0)
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        seen, _, terminated, truncated, _ = made.step(policy.act(seen, True))
        if terminated or truncated:
            seen, _ = made.reset()
    found = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "steps": steps}
    print(json.dumps(found), flush=True)


def alone(environment: str, steps: int) -> None:
    """Play, record trajectories and put them into the learner's buffer, all in one process and without transport."""
    player = _Player(Play(ENVIRONMENTS[environment], Still, 1000, 0), memoryview(bytearray(8)).cast("q"))
    buffer, done = ReplayBuffer(50_000, 32), 0
    began, cpu = time.perf_counter(), time.process_time()
    while done < steps:
        message = player._steps()
        buffer.add(Trajectory("alone", 1, 0, message.arrays, message.count("steps")))
        done += message.count("steps")
    found = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "steps": done}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    {"learner": learner, "worker": worker, "bare": bare, "alone": alone}[sys.argv[1]](**json.loads(sys.argv[2]))  # type: ignore[operator]
