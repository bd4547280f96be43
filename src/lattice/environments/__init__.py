"""Which variables a worker of a framework gets: one file per framework, chosen by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol

from lattice.core.topology import Assignment

FRAMEWORKS = ("generic", "pytorch", "tensorflow", "jax", "mpi", "horovod")


class Environment(Protocol):
    """What a framework's module provides."""

    def ports(self, workers: int) -> int:
        """Tell how many ports a node with this many workers reserves for a round (at least one)."""

    def whole_roster(self) -> bool:
        """Tell whether variables() needs ``assignment.members``."""

    def variables(self, assignment: Assignment, local_rank: int, error_file: str) -> Mapping[str, str]:
        """
        Give the variables that this framework adds for one worker to those of :mod:`lattice.environments.identity`.

        :param assignment: the node's place in the round
        :param local_rank: the worker on this node
        :param error_file: where the worker may write why it failed
        """

    def defaults(self, workers: int, inherited: Mapping[str, str]) -> Mapping[str, str]:
        """Give variables that are set unless the user set them, such as OMP_NUM_THREADS."""

    def notices(self, workers: int, inherited: Mapping[str, str]) -> tuple[str, ...]:
        """Give lines to print once at the start about defaults that users should know of."""


def environment(framework: str) -> Environment:
    """Load the environment of a framework by its name in :data:`FRAMEWORKS`."""
    return import_module(f"lattice.environments.{framework}")
