"""Trajectories as messages."""

from __future__ import annotations

import math
from typing import Any

from lattice.rl.trajectory import Trajectory, flaw
from lattice.rl.wire import BadMessage, Message

MOST_EPISODES = 100_000


def trajectory_message(trajectory: Trajectory) -> Message:
    """Write a trajectory."""
    fields: dict[str, Any] = {
        "worker": trajectory.worker,
        "number": trajectory.number,
        "version": trajectory.version,
        "steps": trajectory.steps,
        "faults": dict(trajectory.faults),
    }
    if trajectory.episode is not None:
        fields["episode"] = dict(trajectory.episode)
    if trajectory.evaluation is not None:
        fields["evaluation"] = dict(trajectory.evaluation)
    return Message("trajectory", fields, trajectory.arrays)


def read_trajectory(message: Message) -> Trajectory:
    """
    Read a trajectory.

    :raises BadMessage: it is none, or one that nothing can be learned from
    """
    episode, evaluation = message.mapping("episode"), message.mapping("evaluation")
    if episode is not None:
        episode = {name: _number(message, episode.get(name)) for name in ("reward", "length")}
    if evaluation is not None:
        lists = {name: evaluation.get(name) for name in ("rewards", "lengths")}
        for name, values in lists.items():
            if not isinstance(values, list) or not 1 <= len(values) <= MOST_EPISODES:
                raise BadMessage(f"{message.kind}: {name} is no list of numbers")
            lists[name] = [_number(message, one) for one in values]
        evaluation = {"order": int(_number(message, evaluation.get("order"))), **lists}
    faults = message.mapping("faults") or {}
    made = Trajectory(
        message.text("worker"),
        message.count("number"),
        message.count("version"),
        message.arrays,
        message.count("steps"),
        episode,
        evaluation,
        {str(name)[:32]: int(_number(message, count)) for name, count in list(faults.items())[:16]},
    )
    if wrong := flaw(made):
        raise BadMessage(f"{message.kind}: {wrong}")
    return made


def _number(message: Message, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadMessage(f"{message.kind}: {str(value)[:40]!r} is no number")
    return value
