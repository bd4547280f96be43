"""
What runs in a simulator's process: the environment and the policy that acts in it, one order after another.

It says ``ready`` once, is told ``go`` with newer parameters if there are any, and answers each with some ``steps`` or
with ``evaluated``. An order that comes while it plays is the next one, so that it does not have to wait. Episodes that
take next to no time are sent several at once: to wake the other side costs more than they do.
"""

from __future__ import annotations

import math
import socket
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import ndarray

from lattice.rl.interfaces import Acted, Array, Arrays, Environment, Policy, as_array
from lattice.rl.pipe import Inflow, packed, receive, send
from lattice.rl.trajectory import OBSERVATION
from lattice.rl.wire import Message

TOGETHER = 0.02
"""seconds of play that are sent at once"""
ACTION, REWARD, TERMINATED, TRUNCATED = "action", "reward", "terminated", "truncated"


class NotFinite(ValueError):
    """An environment gave a value that is no number."""


@dataclass(frozen=True, slots=True)
class Play:
    """What a simulator's process is made of."""

    environment: Callable[[], Environment]
    policy: Callable[[], Policy]
    segment: int
    """steps after which a trajectory is cut, though its episode goes on"""
    seed: int
    """of the first episode; later ones go on from there"""


def serve(line: socket.socket, play: Play, count: memoryview) -> int:
    """
    Play until nobody asks for more.

    :param line: to the worker
    :param play: what to play
    :param count: its first number grows with every step, so that a hang can be seen
    :return: the exit code
    """
    finished: list[bytes] = []
    try:
        _Player(play, count).serve(line, finished)
    except (BrokenPipeError, ConnectionResetError):
        return 0  # the worker has gone
    except Exception as error:
        kind = "nan" if isinstance(error, NotFinite) else "crash"
        failed = Message("failed", {"fault": kind, "text": traceback.format_exc()[-4000:]})
        line.sendall(b"".join([*finished, packed(failed)]))
        return 70
    return 0


class _Tape:
    """Memory for one segment, used again and again."""

    def __init__(self, segment: int) -> None:
        self._segment = segment
        self.rewards = np.empty(segment, np.float32)
        self.observations: Array = np.empty(0)
        self.actions: Array | None = None

    def begin(self, observation: Array) -> None:
        if self.observations.shape[1:] != observation.shape or self.observations.dtype != observation.dtype:
            self.observations = np.empty((self._segment + 1, *observation.shape), observation.dtype)
        self.observations[0] = observation

    def has_actions(self, first: Any) -> Array:
        found = as_array(first)
        self.actions = np.empty((self._segment, *found.shape), found.dtype)
        return self.actions

    def takes(self, array: Array, value: Any) -> Any:
        """
        See that a value can be noted in an array as it is.

        :return: by what others like it are known
        :raises TypeError: whole numbers came first, and now a fraction, or a NaN, would be cut to one
        """
        if not np.can_cast(as_array(value).dtype, array.dtype, "same_kind"):
            raise TypeError(f"{value!r} came after {array.dtype} values: give the same type in every step")
        return _kind(value)

    def read(self, steps: int) -> dict[str, Array]:
        assert self.actions is not None
        found = {OBSERVATION: self.observations[: steps + 1], ACTION: self.actions[:steps]}
        return {**found, REWARD: self.rewards[:steps]}


class _Player:
    def __init__(self, play: Play, count: memoryview) -> None:
        self._play = play
        self._count = count
        self._tape = _Tape(play.segment)
        self._environment = play.environment()
        self._policy = play.policy()
        self._judged: Environment | None = None
        self._seed: int | None = play.seed
        self._observation: Array | None = None
        self._reward = 0.0
        self._length = 0

    def serve(self, line: socket.socket, finished: list[bytes]) -> None:
        """
        Obey orders until nobody gives any.

        :param finished: what has been played, and is not sent yet
        """
        inflow = Inflow()
        send(line, Message("ready"))
        while True:
            order = receive(line, inflow)
            if order is None:
                return
            if order.arrays:
                self._policy.load(order.arrays)
            evaluate = order.mapping("evaluate")
            fields, most = {"version": order.count("version")}, order.count("most")
            until = time.perf_counter() + TOGETHER
            while True:
                answer = self._steps() if evaluate is None else self._evaluate(evaluate)
                last = evaluate is not None or len(finished) + 1 >= most or time.perf_counter() >= until
                finished.append(packed(Message(answer.kind, {**fields, "last": last, **answer.fields}, answer.arrays)))
                if last:
                    break
            line.sendall(b"".join(finished))
            finished.clear()

    def _steps(self) -> Message:
        """Play one segment of an episode; what is done for each step here is what a step costs more than by itself."""
        act, step, count = self._policy.act, self._environment.step, self._count
        observation = self._begin() if self._observation is None else self._observation
        tape = self._tape
        tape.begin(observation)
        observations, actions, rewards = tape.observations, tape.actions, tape.rewards
        extras: list[Mapping[str, Any]] = []
        terminated = truncated = False
        seen = acted = None  # what kind of value came last: only another one has to be looked at
        at = 0
        for at in range(self._play.segment):
            choice = act(observation, True)
            if isinstance(choice, Acted):
                extras.append(choice.extras)
                choice = choice.action
            observation, reward, terminated, truncated, _ = step(choice)
            if actions is None:
                actions = tape.has_actions(choice)
            if (choice.dtype if choice.__class__ is ndarray else choice.__class__) is not acted:
                acted = tape.takes(actions, choice)
            if observation.__class__ is not ndarray:
                observation = as_array(observation)
            if observation.dtype is not seen:
                seen = tape.takes(observations, observation)
            observations[at + 1] = observation  # copied: environments may use the same memory again
            actions[at] = choice
            rewards[at] = reward
            count[0] += 1
            if terminated or truncated:
                break
        steps = at + 1
        arrays = tape.read(steps)
        arrays |= {name: np.zeros(steps, np.bool_) for name in (TERMINATED, TRUNCATED)}
        arrays[TERMINATED][-1], arrays[TRUNCATED][-1] = terminated, truncated
        if extras:
            arrays |= {name: as_array([one[name] for one in extras]) for name in extras[0]}
        _check(arrays)
        self._reward += float(arrays[REWARD].sum(dtype=np.float64))
        self._length += steps
        ended = bool(terminated or truncated)
        episode = {"reward": self._reward, "length": self._length} if ended else None
        self._observation = None if ended else observations[steps].copy()
        return Message("steps", {"steps": steps, "episode": episode}, arrays)

    def _begin(self) -> Array:
        self._reward, self._length = 0.0, 0
        found, _ = self._environment.reset(seed=self._seed)
        self._seed = None
        self._count[0] += 1
        return as_array(found)

    def _evaluate(self, order: Mapping[str, Any]) -> Message:
        """Play whole episodes without exploring, in an environment of their own, from seeds that were given."""
        if self._judged is None:
            self._count[0] = 0  # as long as there is no step, it has the time of a start
            self._judged = self._play.environment()
        rewards, lengths = [], []
        for episode in range(int(order["episodes"])):
            found, _ = self._judged.reset(seed=int(order["seed"]) + episode)
            reward, length, ended = 0.0, 0, False
            while not ended:
                choice = self._policy.act(as_array(found), False)
                choice = choice.action if isinstance(choice, Acted) else choice
                found, gained, terminated, truncated, _ = self._judged.step(choice)
                reward, length, ended = reward + float(gained), length + 1, bool(terminated or truncated)
                self._count[0] += 1
            if not math.isfinite(reward):
                raise NotFinite(f"the reward of an evaluation is {reward}")
            rewards.append(reward)
            lengths.append(length)
        return Message("evaluated", {"order": order["order"], "rewards": rewards, "lengths": lengths})


def _kind(value: Any) -> Any:
    return value.dtype if value.__class__ is ndarray else value.__class__


def _check(arrays: Arrays) -> None:
    for name, array in arrays.items():
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            raise NotFinite(f"{name} has values that are not finite")
