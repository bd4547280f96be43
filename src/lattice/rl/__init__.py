"""
Reinforcement learning with one learner and many workers, of whom any may fail: see ``docs/rl.md``.

No framework is assumed: parameters, observations and batches are numpy arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lattice.rl.buffers import Buffer, OnPolicyQueue, ReplayBuffer
    from lattice.rl.interfaces import Acted, Algorithm, Environment, Policy
    from lattice.rl.learner import Learned, Learner
    from lattice.rl.settings import Goal, LearnerSettings, WorkerSettings
    from lattice.rl.trajectory import Trajectory
    from lattice.rl.worker import Worked, Worker

__all__ = [
    "Acted",
    "Algorithm",
    "Buffer",
    "Environment",
    "Goal",
    "Learned",
    "Learner",
    "LearnerSettings",
    "OnPolicyQueue",
    "Policy",
    "ReplayBuffer",
    "Trajectory",
    "Worked",
    "Worker",
    "WorkerSettings",
]
_PLACES = {
    "lattice.rl.buffers": ("Buffer", "OnPolicyQueue", "ReplayBuffer"),
    "lattice.rl.interfaces": ("Acted", "Algorithm", "Environment", "Policy"),
    "lattice.rl.learner": ("Learned", "Learner"),
    "lattice.rl.settings": ("Goal", "LearnerSettings", "WorkerSettings"),
    "lattice.rl.trajectory": ("Trajectory",),
    "lattice.rl.worker": ("Worked", "Worker"),
}


def __getattr__(name: str) -> object:
    # Loaded when asked for: a report needs no ZeroMQ.
    for module, names in _PLACES.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
