"""What both learners do alike: take the goal and the place of the results from their environment, and learn."""

from __future__ import annotations

import os
from typing import Any

import torch

from lattice.rl import Algorithm, Goal, Learner, LearnerSettings, ReplayBuffer


def learn(algorithm: Algorithm, buffer: ReplayBuffer, *, reward: float, seconds: float, **settings: Any) -> None:
    """
    Learn until the goal is reached.

    :param reward: of an evaluation, unless REWARD says otherwise
    :param seconds: at most, unless SECONDS says otherwise
    :param settings: of the learner
    """
    torch.set_num_threads(1)
    results = os.environ.get("RESULTS", "results")
    results = results if "://" in results else os.path.abspath(results)  # noqa: PTH100 - may be in S3
    print(f"results: {results}", flush=True)
    goal = Goal(
        reward=float(os.environ.get("REWARD", reward)),
        seconds=float(os.environ.get("SECONDS", seconds)),
    )
    usual = {"checkpoint_every": 5.0, "updates_per_step": 0.5, "staleness": 200, "metrics_every": 2.0}
    print(Learner(algorithm, buffer, goal, LearnerSettings(results=results, **{**usual, **settings})).run(), flush=True)
