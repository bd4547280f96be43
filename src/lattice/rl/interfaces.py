"""What a user of the runtime gives: an environment, a policy that acts, and an algorithm that learns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = Mapping[str, Array]
"""named arrays: parameters of a policy, a batch, what a trajectory is made of"""


class Environment(Protocol):
    """What is used of Gymnasium's ``Env``; any of those is one."""

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""

    def step(self, action: Any, /) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Do one step: observation, reward, terminated, truncated, and more."""

    def close(self) -> None:
        """Give back what it holds."""


@dataclass(frozen=True, slots=True)
class Acted:
    """An action, with what else of this step should go into the trajectory."""

    action: Any
    extras: Mapping[str, Any] = field(default_factory=dict)
    """by name, such as ``log_probability``: the same names and shapes in every step"""


class Policy(Protocol):
    """How workers act."""

    def act(self, observation: Array, explore: bool) -> Any:
        """
        Choose an action.

        :param observation: the newest one
        :param explore: false in evaluation episodes
        :return: the action, or :class:`Acted` with more to record
        """

    def load(self, parameters: Arrays) -> None:
        """Act with these parameters from now on."""


class Algorithm(Protocol):
    """How the learner learns."""

    def update(self, batch: Arrays) -> Mapping[str, float]:
        """
        Learn from one batch.

        :param batch: what the buffer gave
        :return: figures to write down, such as losses
        """

    def parameters(self) -> Arrays:
        """Give the parameters that workers act with."""

    def state(self) -> Mapping[str, Any]:
        """Give all that a restarted learner needs: nested dicts and lists of arrays, numbers, text, bytes."""

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from a state."""


def as_array(value: Any) -> Array:
    """Make an array of what an environment or a policy gave: 64-bit floats become 32-bit ones."""
    found = np.asarray(value)
    return found.astype(np.float32) if found.dtype == np.float64 else found
