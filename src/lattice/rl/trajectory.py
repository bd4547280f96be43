"""What a worker sends: some steps of one episode, and which policy made them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lattice.rl.interfaces import Array, Arrays

OBSERVATION = "observation"
NEXT = "next_observation"


@dataclass(frozen=True, slots=True)
class Trajectory:
    """Steps of one episode, or how evaluation episodes went, which has no steps."""

    worker: str
    """the incarnation of the worker: another one after each restart"""
    number: int
    """counts from 1 without gaps; with ``worker`` it is the id"""
    version: int
    """of the policy that acted"""
    arrays: Arrays
    """``observation`` has one entry more than there are steps, all others have one for each"""
    steps: int
    episode: Mapping[str, float] | None = None
    """``reward`` and ``length`` of the episode that ended with these steps; None if it goes on"""
    evaluation: Mapping[str, Any] | None = None
    """``order``, ``rewards`` and ``lengths``, if these were evaluation episodes"""
    faults: Mapping[str, int] = field(default_factory=dict)
    """how often this worker's simulator has failed so far, by kind"""

    @property
    def size(self) -> int:
        """Tell how many bytes the arrays have."""
        return sum(array.nbytes for array in self.arrays.values())

    def transitions(self) -> dict[str, Array]:
        """Give one entry for each step under every name, with ``next_observation``."""
        found = {name: array for name, array in self.arrays.items() if name != OBSERVATION}
        observations = self.arrays[OBSERVATION]
        return {OBSERVATION: observations[:-1], NEXT: observations[1:], **found}


def flaw(trajectory: Trajectory) -> str:
    """
    Tell what is wrong with a trajectory.

    :return: a sentence, or nothing
    """
    if trajectory.number < 1 or trajectory.version < 0 or trajectory.steps < 0 or not trajectory.worker:
        return "its number, version or worker is none"
    if trajectory.evaluation is not None:
        return "" if not trajectory.arrays and not trajectory.steps else "an evaluation has no steps"
    if not trajectory.steps or OBSERVATION not in trajectory.arrays:
        return "it has no steps"
    for name, array in trajectory.arrays.items():
        wanted = trajectory.steps + (name == OBSERVATION)
        if array.ndim < 1 or len(array) != wanted:
            return f"{name!r} has not {wanted} entries"
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            return f"{name!r} has values that are not finite"
    return ""
