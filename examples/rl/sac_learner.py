"""A learner for SAC on Pendulum: two critics, and a temperature that tunes itself. It ends at a reward of -200."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from lattice.rl import ReplayBuffer
from learning import learn
from mlp import arrays, plain, tensors

GAMMA, RATE, HIDDEN, AVERAGED = 0.99, 1e-3, 64, 0.005
SCALE, WANTED_ENTROPY = 2.0, -1.0


def network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs)
    )


class SoftActorCritic:
    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.policy = network(3, 2)
        self.critics = nn.ModuleList([network(4, 1), network(4, 1)])
        self.targets = copy.deepcopy(self.critics)
        self.log_temperature = nn.ParameterList([nn.Parameter(torch.zeros(()))])
        self.of_policy = torch.optim.Adam(self.policy.parameters(), RATE)
        self.of_critics = torch.optim.Adam(self.critics.parameters(), RATE)
        self.of_temperature = torch.optim.Adam(self.log_temperature.parameters(), RATE)

    def act(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw actions from -1 to 1, and give the logarithm of how likely each was."""
        mean, log_deviation = self.policy(observation).chunk(2, 1)
        normal = torch.distributions.Normal(mean, log_deviation.clamp(-5, 2).exp())
        drawn = normal.rsample()
        squeezed = 2 * (0.6931472 - drawn - nn.functional.softplus(-2 * drawn))  # of tanh, without its rounding
        return torch.tanh(drawn), normal.log_prob(drawn) - squeezed  # type: ignore[no-untyped-call]

    def values(self, critics: nn.ModuleList, observation: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        both = torch.cat([observation, action], 1)
        return torch.stack([critic(both)[:, 0] for critic in critics])

    def update(self, batch: Any) -> dict[str, float]:
        observation, following = (torch.from_numpy(batch[name]) for name in ("observation", "next_observation"))
        action, reward = torch.from_numpy(batch["action"]) / SCALE, torch.from_numpy(batch["reward"]) / 10
        ended = torch.from_numpy(batch["terminated"]).float()
        temperature = self.log_temperature[0].exp()
        with torch.no_grad():
            then, likely = self.act(following)
            least = self.values(self.targets, following, then).min(0).values
            wanted = reward + GAMMA * (1 - ended) * (least - temperature * likely[:, 0])
        loss = ((self.values(self.critics, observation, action) - wanted) ** 2).mean(1).sum()
        self.step(self.of_critics, loss)
        now, likely = self.act(observation)
        value = self.values(self.critics, observation, now).min(0).values
        self.step(self.of_policy, (temperature.detach() * likely[:, 0] - value).mean())
        self.step(self.of_temperature, -(self.log_temperature[0] * (likely.detach() + WANTED_ENTROPY).mean()))
        with torch.no_grad():
            for target, critic in zip(self.targets.parameters(), self.critics.parameters(), strict=True):
                target.lerp_(critic, AVERAGED)
        return {"loss": float(loss.detach()), "temperature": float(temperature.detach())}

    def step(self, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def parameters(self) -> dict[str, Any]:
        found: dict[str, Any] = arrays("policy", self.policy)
        return found

    def parts(self) -> dict[str, Any]:
        return {name: part for name, part in vars(self).items() if hasattr(part, "load_state_dict")}

    def state(self) -> dict[str, Any]:
        return {name: plain(part.state_dict()) for name, part in self.parts().items()}

    def load_state(self, state: Any) -> None:
        for name, part in self.parts().items():
            part.load_state_dict(tensors(state[name]))


if __name__ == "__main__":
    learn(
        SoftActorCritic(),
        ReplayBuffer(capacity=100_000, batch_size=128, warm_up=1000),
        reward=-200,
        seconds=900,
        run_parameters={"gamma": GAMMA, "rate": RATE, "hidden": HIDDEN},
        publish_every=10,
        evaluate_every=2000,
        evaluation_episodes=10,
    )
