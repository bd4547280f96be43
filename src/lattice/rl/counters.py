"""What a learner counts: for its goal and its checkpoints, and for the lines of metrics in between."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lattice.rl.results import lines
from lattice.rl.trajectory import Trajectory

RECENT = 100
"""episodes over which the mean reward is taken"""


@dataclass(slots=True)
class Counters:
    """Goes on over restarts."""

    env_steps: int = 0
    trajectories: int = 0
    episodes: int = 0
    updates: int = 0
    version: int = 0
    """of the policy"""
    seconds: float = 0.0
    """at work, all lives together"""
    saves: int = 0
    """checkpoints"""
    lives: int = 0
    """starts of the learner"""
    epochs: int = 0
    evaluated_at: int = 0
    """steps at the last evaluation that was asked for"""
    best: float | None = None
    """mean reward of the best evaluation"""
    newest: float | None = None
    """that of the newest"""

    def state(self) -> dict[str, Any]:
        """Give what a checkpoint needs."""
        return asdict(self)

    @staticmethod
    def of(state: Mapping[str, Any]) -> Counters:
        """Go on from a checkpoint."""
        return Counters(**state)


@dataclass(slots=True)
class Window:
    """What happened since the last line of metrics."""

    began: float
    steps: int = 0
    size: int = 0
    updating: float = 0.0
    """seconds in updates"""
    staleness: list[int] = field(default_factory=list)
    figures: dict[str, list[float]] = field(default_factory=dict)

    def took(self, trajectory: Trajectory, newest: int) -> None:
        """Note what came."""
        self.steps += trajectory.steps
        self.size += trajectory.size
        if trajectory.steps:
            self.staleness.append(max(newest - trajectory.version, 0))

    def updated(self, seconds: float, figures: Mapping[str, float]) -> None:
        """Note an update."""
        self.updating += seconds
        for name, value in figures.items():
            self.figures.setdefault(name, []).append(float(value))

    def row(self, now: float, taking: float) -> dict[str, Any]:
        """
        Give what there is to say.

        :param taking: seconds in which messages were taken in
        """
        passed = max(now - self.began, 1e-9)
        return {
            "steps_per_second": round(self.steps / passed, 2),
            "mb_per_second": round(self.size / passed / 1e6, 4),
            "utilisation": round(min(self.updating / passed, 1.0), 4),
            "intake": round(min(taking / passed, 1.0), 4),
            "staleness_mean": round(statistics.fmean(self.staleness), 3) if self.staleness else None,
            "staleness_max": max(self.staleness, default=None),
            **{f"update/{name}": round(statistics.fmean(values), 6) for name, values in self.figures.items()},
        }


class Rewards:
    """Episodes since the last checkpoint, and the mean of recent ones."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._recent: deque[float] = deque(maxlen=RECENT)

    @property
    def mean(self) -> float | None:
        """Give the mean reward of recent episodes."""
        return round(statistics.fmean(self._recent), 4) if self._recent else None

    def add(self, row: dict[str, Any]) -> None:
        """Note an episode."""
        self.rows.append(row)
        if row["kind"] == "training":
            self._recent.append(row["reward"])

    def state(self) -> dict[str, Any]:
        """Give what a checkpoint needs."""
        return {"rows": lines(self.rows), "recent": list(self._recent)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; its rows are written by whoever restores it."""
        self.rows = []
        self._recent.clear()
        self._recent.extend(state["recent"])
