"""Where the learner puts trajectories until it trains on them: a ring for replay, or a queue for once and no more."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from lattice.rl.interfaces import Array, Arrays
from lattice.rl.trajectory import Trajectory

FIRST = "first"
Form = dict[str, tuple[tuple[int, ...], str]]
"""shape and type of one step, by the name of the array"""


class Buffer(Protocol):
    """What a learner needs of a buffer."""

    @property
    def room(self) -> int:
        """Tell how many trajectories may be taken in before the next batch."""

    @property
    def ready(self) -> bool:
        """Tell whether there is a batch."""

    def add(self, trajectory: Trajectory) -> None:
        """Take in a trajectory that has steps."""

    def batch(self) -> Arrays:
        """Give a batch."""

    def state(self) -> dict[str, Any]:
        """Give what a checkpoint needs: no copies, so to be used before the next change."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""


class ReplayBuffer:
    """The newest steps of all workers; each batch is a random choice of them."""

    def __init__(self, capacity: int, batch_size: int, warm_up: int = 0, seed: int = 0) -> None:
        """
        Begin with nothing; memory is taken with the first trajectory.

        :param capacity: steps
        :param batch_size: steps of a batch
        :param warm_up: steps that must be there before the first batch
        :param seed: of the choices
        """
        if not 1 <= batch_size <= capacity or warm_up > capacity:
            raise ValueError(f"batch_size {batch_size} and warm_up {warm_up} must fit into capacity {capacity}")
        self.capacity, self.batch_size, self.warm_up = capacity, batch_size, max(warm_up, 1)
        self._random = np.random.default_rng(seed)
        self._arrays: dict[str, Array] = {}
        self._at = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def room(self) -> int:
        """As many as come: the oldest steps make room."""
        return sys.maxsize

    @property
    def ready(self) -> bool:
        """Tell whether it is warm."""
        return self._length >= self.warm_up

    def add(self, trajectory: Trajectory) -> None:
        """
        Take in the steps of a trajectory.

        :raises ValueError: they have other names, shapes or types than earlier ones
        """
        steps = trajectory.transitions()
        if not self._arrays:
            self._arrays = {
                name: np.zeros((self.capacity, *array.shape[1:]), array.dtype) for name, array in steps.items()
            }
        for name, array in steps.items():
            mine = self._arrays.get(name)
            if mine is None or mine.shape[1:] != array.shape[1:] or mine.dtype != array.dtype:
                raise ValueError(f"{name!r} is {array.dtype}{array.shape[1:]}, which earlier trajectories had not")
        if len(steps) != len(self._arrays):
            raise ValueError(f"it has {', '.join(steps)} and earlier ones had {', '.join(self._arrays)}")
        count = trajectory.steps
        if count > self.capacity:
            steps, count = {name: array[-self.capacity :] for name, array in steps.items()}, self.capacity
        before_end = min(count, self.capacity - self._at)
        for name, array in steps.items():
            self._arrays[name][self._at : self._at + before_end] = array[:before_end]
            self._arrays[name][: count - before_end] = array[before_end:]
        self._at = (self._at + count) % self.capacity
        self._length = min(self._length + count, self.capacity)

    def batch(self) -> Arrays:
        """Choose steps, each as likely as the other, with repetition."""
        chosen = self._random.integers(self._length, size=self.batch_size)
        return {name: array[chosen] for name, array in self._arrays.items()}

    def state(self) -> dict[str, Any]:
        """Give what a checkpoint needs: only what is filled."""
        return {
            "at": self._at,
            "length": self._length,
            "arrays": {name: array[: self._length] for name, array in self._arrays.items()},
            "random": json.dumps(self._random.bit_generator.state),  # has integers of 128 bits
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; if the capacity has changed, with the newest steps that fit."""
        length, at = int(state["length"]), int(state["at"])
        order = np.arange(at - length, at) % max(length, 1)  # oldest first; what is filled is a ring of its own length
        kept = order[-self.capacity :]
        self._arrays = {}
        for name, array in state["arrays"].items():
            mine = np.zeros((self.capacity, *array.shape[1:]), array.dtype)
            mine[: len(kept)] = array[kept]
            self._arrays[name] = mine
        self._length = len(kept)
        self._at = self._length % self.capacity
        self._random.bit_generator.state = json.loads(state["random"])


class OnPolicyQueue:
    """Whole trajectories, each of them trained on once."""

    def __init__(self, batch_size: int, capacity: int = 0) -> None:
        """
        Begin with nothing.

        :param batch_size: trajectories of a batch
        :param capacity: trajectories beyond which workers have to wait; twice a batch if 0
        """
        self.batch_size = batch_size
        self.capacity = capacity or 2 * batch_size
        if not 1 <= self.batch_size <= self.capacity:
            raise ValueError(f"batch_size {batch_size} must fit into capacity {capacity}")
        self._waiting: deque[Trajectory] = deque()
        self._form: Form | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def room(self) -> int:
        """Tell how many may come before workers have to wait."""
        return self.capacity - len(self._waiting)

    @property
    def ready(self) -> bool:
        """Tell whether there are enough for a batch."""
        return len(self._waiting) >= self.batch_size

    def add(self, trajectory: Trajectory) -> None:
        """
        Take in a trajectory.

        :raises ValueError: it has other arrays than the first one had, so that no batch could be made of both
        """
        form = _form(trajectory)
        self._form = self._form or form
        if form != self._form:
            raise ValueError(f"it has {form}, and the first one had {self._form}")
        self._waiting.append(trajectory)

    def batch(self) -> Arrays:
        """
        Take the oldest ones out.

        :return: their steps one after another, and ``first``: at which step each of them begins
        """
        taken = [self._waiting.popleft() for _ in range(self.batch_size)]
        parts = [trajectory.transitions() for trajectory in taken]
        found = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        lengths = [trajectory.steps for trajectory in taken]
        return {**found, FIRST: np.cumsum([0, *lengths[:-1]])}

    def state(self) -> dict[str, Any]:
        """Give what a checkpoint needs."""
        return {
            "waiting": [
                {
                    "worker": one.worker,
                    "number": one.number,
                    "version": one.version,
                    "steps": one.steps,
                    "arrays": dict(one.arrays),
                }
                for one in self._waiting
            ]
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._waiting = deque(Trajectory(**one) for one in state["waiting"])
        self._form = _form(self._waiting[0]) if self._waiting else None


def _form(trajectory: Trajectory) -> Form:
    return {name: (array.shape[1:], array.dtype.str) for name, array in trajectory.arrays.items()}
