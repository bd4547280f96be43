"""A worker for DQN on CartPole: acts by the newest network, and by chance now and then."""

from __future__ import annotations

import random
from typing import Any

import gymnasium

from lattice.rl import Worker, WorkerSettings
from mlp import forward


class Greedy:
    """Does what the network values most; how often it does something else, the learner says with its parameters."""

    def __init__(self) -> None:
        self.parameters: dict[str, Any] = {}

    def load(self, parameters: Any) -> None:
        self.parameters = dict(parameters)

    def act(self, observation: Any, explore: bool) -> int:
        if explore and random.random() < self.parameters["epsilon"][0]:
            return random.randrange(2)
        return int(forward(self.parameters, "q", observation).argmax())


if __name__ == "__main__":
    # The learner takes longer than the environment: what waits for it only grows old.
    worker = Worker(lambda: gymnasium.make("CartPole-v1"), Greedy, WorkerSettings(credit=2))
    print(worker.run(), flush=True)
