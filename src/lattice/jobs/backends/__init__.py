"""Where jobs run: one file per place, chosen by name, all with the same promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol, runtime_checkable

from lattice.jobs.index import Record
from lattice.jobs.job import Job, Role
from lattice.jobs.progress import NodeView

PLACES = ("local", "ssh", "slurm", "aws", "kubernetes")
Say = Callable[[str], None]
"""tells the user of progress"""
Save = Callable[[Record], None]
"""remembers how far a submission has come"""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a submission makes."""

    what: str
    detail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which of a job's logs are wanted."""

    rank: int | None = None
    """one worker's own output, byte for byte; None for what the agents show"""
    nodes: frozenset[int] | None = None
    """only these; None for all"""
    container: str = ""
    """what a sidecar of this name wrote instead, where there are containers"""

    def of(self, indices: Iterable[int]) -> list[int]:
        """Leave out nodes that are not wanted."""
        return [index for index in indices if self.nodes is None or index in self.nodes]


class Backend(Protocol):
    """A place. Every call may be repeated: what was done already is not done again."""

    def plan(self, job: Job) -> tuple[Step, ...]:
        """Tell what a submission would make; pure."""

    def submit(self, record: Record, save: Save, say: Say) -> Record:
        """
        Make it, or make what is missing.

        :raises LatticeError: it can't be done; what was made stays for :meth:`remove`
        """

    def look(self, record: Record) -> list[NodeView]:
        """Tell how its nodes stand."""

    def logs(self, record: Record, wanted: Wanted, *, follow: bool) -> Iterator[tuple[int, bytes]]:
        """Give what was written, in pieces of whole lines, and which node's it is."""

    def scale(self, record: Record, role: Role, nodes: int, save: Save, say: Say) -> Record:
        """Have another number of nodes of a role, within what it allows."""

    def kill(self, record: Record, grace: float, say: Say) -> list[NodeView]:
        """End it: workers get their time to save."""

    def remove(self, record: Record, say: Say, *, anew: bool = False) -> list[str]:
        """
        Delete all that it made, and tell what could not be deleted.

        :param anew: its name is used again: what the next one can use may stay
        """


@runtime_checkable
class Priced(Protocol):
    """A place that costs money by the hour."""

    def quote(self, job: Job) -> list[str]:
        """Say how much, in lines; asks the place for its prices."""


def backend(place: str) -> Backend:
    """Load a place by its name in :data:`PLACES`."""
    if place not in PLACES:
        raise ValueError(place)
    made: Backend = import_module(f"lattice.jobs.backends.{place}").make()
    return made
