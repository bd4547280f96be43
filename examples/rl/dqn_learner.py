"""A learner for DQN on CartPole: double Q-learning with a replay buffer. It ends when an evaluation gives 475."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

from lattice.rl import ReplayBuffer
from learning import learn
from mlp import arrays, plain, tensors

GAMMA, RATE, HIDDEN = 0.99, 1e-3, 128
EXPLORING, LEAST = 4000, 0.05
"""updates over which chance gives way to the network, and how much of it stays"""
AVERAGED = 0.01
"""how much of the network goes into its slow copy with each update"""


class DoubleDQN:
    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.q = nn.Sequential(
            nn.Linear(4, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2)
        )
        self.target = copy.deepcopy(self.q)
        self.optimizer = torch.optim.Adam(self.q.parameters(), RATE)
        self.updates = 0

    def update(self, batch: Any) -> dict[str, float]:
        observation, following = (torch.from_numpy(batch[name]) for name in ("observation", "next_observation"))
        action = torch.from_numpy(batch["action"]).long()[:, None]
        reward, ended = torch.from_numpy(batch["reward"]), torch.from_numpy(batch["terminated"]).float()
        with torch.no_grad():
            best = self.q(following).argmax(1, keepdim=True)
            wanted = reward + GAMMA * (1 - ended) * self.target(following).gather(1, best)[:, 0]
        loss = nn.functional.smooth_l1_loss(self.q(observation).gather(1, action)[:, 0], wanted)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.q.parameters(), 10.0)
        self.optimizer.step()
        self.updates += 1
        with torch.no_grad():
            for slow, quick in zip(self.target.parameters(), self.q.parameters(), strict=True):
                slow.lerp_(quick, AVERAGED)
        return {"loss": float(loss.detach())}

    def parameters(self) -> dict[str, Any]:
        epsilon = max(LEAST, 1 - self.updates / EXPLORING)
        return {**arrays("q", self.q), "epsilon": np.array([epsilon], np.float32)}

    def state(self) -> dict[str, Any]:
        parts: dict[str, Any] = {"q": self.q, "target": self.target, "optimizer": self.optimizer}
        return {"updates": self.updates, **{name: plain(part.state_dict()) for name, part in parts.items()}}

    def load_state(self, state: Any) -> None:
        self.updates = state["updates"]
        self.q.load_state_dict(tensors(state["q"]))
        self.target.load_state_dict(tensors(state["target"]))
        self.optimizer.load_state_dict(tensors(state["optimizer"]))


if __name__ == "__main__":
    learn(
        DoubleDQN(),
        ReplayBuffer(capacity=50_000, batch_size=64, warm_up=1000),
        reward=475,
        seconds=600,
        run_parameters={"gamma": GAMMA, "rate": RATE, "hidden": HIDDEN},
        publish_every=20,
        evaluate_every=5000,
    )
