"""A worker for SAC on Pendulum: acts by the newest policy, a normal distribution squeezed into the range of actions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from lattice.rl import Worker, WorkerSettings
from mlp import forward

SCALE = 2.0
"""Pendulum takes torques from -2 to 2"""


class Squashed:
    def __init__(self) -> None:
        self.parameters: dict[str, Any] = {}
        self.random = np.random.default_rng()

    def load(self, parameters: Any) -> None:
        self.parameters = dict(parameters)

    def act(self, observation: Any, explore: bool) -> Any:
        mean, log_deviation = forward(self.parameters, "policy", observation)
        if explore:
            mean += np.exp(np.clip(log_deviation, -5.0, 2.0)) * self.random.standard_normal()
        return np.array([SCALE * np.tanh(mean)], np.float32)


if __name__ == "__main__":
    # The learner takes longer than the environment: what waits for it only grows old.
    worker = Worker(lambda: gymnasium.make("Pendulum-v1"), Squashed, WorkerSettings(credit=2))
    print(worker.run(), flush=True)
