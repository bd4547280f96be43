"""What may be set of learners and workers, with its default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any


@dataclass(frozen=True, slots=True)
class Goal:
    """When a learner has done its work: as soon as one of these is reached."""

    env_steps: int | None = None
    """steps of environments that were taken in"""
    updates: int | None = None
    """updates that were done"""
    seconds: float | None = None
    """seconds in which it was at work, all its lives together"""
    reward: float | None = None
    """mean reward of an evaluation"""

    def reached(self, env_steps: int, updates: int, seconds: float, reward: float | None) -> str:
        """
        Tell which of the goals is reached.

        :param reward: of the newest evaluation; None if there was none yet
        :return: a sentence; empty for none
        """
        if self.reward is not None and reward is not None and reward >= self.reward:
            return f"reward {reward:g} of {self.reward:g}"
        if self.env_steps is not None and env_steps >= self.env_steps:
            return f"{env_steps} steps of {self.env_steps}"
        if self.updates is not None and updates >= self.updates:
            return f"{updates} updates of {self.updates}"
        if self.seconds is not None and seconds >= self.seconds:
            return f"{seconds:.1f}s of {self.seconds:g}s"
        return ""


@dataclass(frozen=True, slots=True)
class LearnerSettings:
    """How a learner works."""

    results: str | PathLike[str] | None = None
    """folder, or ``s3://bucket/prefix``, for what a person wants to see; None for no results"""
    checkpoint: str | PathLike[str] | None = ""
    """where its state is kept, see ``lattice.checkpoint``; empty for ``state`` in the results, None for none"""
    checkpoint_every: float = 30.0
    """seconds between two checkpoints; when workers have no room left there is one in between"""
    keep_last: int = 2
    """checkpoints that stay"""
    run_parameters: Mapping[str, Any] = field(default_factory=dict)
    """what to write into ``params.json`` about this run"""
    updates_per_step: float | None = None
    """updates for each step that was taken in: workers wait for a learner that falls behind. None: as many as it can"""
    publish_every: int = 1
    """updates after which the policy has a new version"""
    staleness: int | None = None
    """versions that a trajectory may be behind; older ones are refused and counted. None: any number"""
    evaluate_every: int = 0
    """steps between two evaluations; 0 for none"""
    evaluation_episodes: int = 5
    evaluation_seed: int = 1_000_000
    """of the first episode of every evaluation; the others have the following"""
    epoch_steps: int = 10_000
    """steps after which the policy is written to the results"""
    metrics_every: float = 10.0
    """seconds between two lines of metrics"""
    host: str = "*"
    """address to listen on"""
    port: int | None = None
    """port to listen on; None for ``LATTICE_WORKER_PORT``, or any that is free"""
    key: str | None = field(default=None, repr=False)
    """common secret of learner and workers; None for that of the job"""
    farewell: float = 10.0
    """seconds, at most, in which workers are told that the goal is reached"""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker works."""

    role: str = "learner"
    """of the job, whose first worker is the learner"""
    address: str | None = None
    """``host:port`` of the learner; None to ask ``lattice.peers``, again and again"""
    key: str | None = field(default=None, repr=False)
    """common secret of learner and workers; None for that of the job"""
    segment: int = 1000
    """steps after which a trajectory is sent, though its episode goes on"""
    credit: int = 8
    """trajectories that may be under way before the learner has said that it took one"""
    limit: int = 10_000
    """trajectories that are kept until the learner has them in a checkpoint"""
    seed: int | None = None
    """of the first episode; None for chance"""
    step_timeout: float = 30.0
    """seconds without a step after which the simulator hangs"""
    start_timeout: float = 300.0
    """seconds that it has to start"""
    backoff: float = 0.5
    """seconds before a simulator that failed is started again; doubles with each failure in a row"""
    longest_backoff: float = 30.0
    patience: float = 5.0
    """seconds in which the learner has taken nothing, after which it is greeted anew, and asked what it has"""
    farewell: float = 5.0
    """seconds, at most, in which a worker that is told to stop hands over what it has"""
