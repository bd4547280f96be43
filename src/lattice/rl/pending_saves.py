"""
Saves of the learner that the log of its checkpoints does not have yet. No clock, no network.

``save`` returns as soon as a copy is in the memory of the node. Between that and the entry in the log the checkpoint
can still be lost: with the node, or because the next learner has opened the log first, which then refuses it. So two
things wait here until the log has it: the word to the workers that they may forget, and its episodes in the results.

A save that is refused or dropped stays here until a newer one is committed. The newer one has all that it had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PendingSave:
    """A save, and what follows from it once it is committed."""

    number: int
    intake: Mapping[str, Any]
    """state of the intake that is in it"""
    rewards: Mapping[str, bytes]
    """content of ``rewards/N.jsonl`` by N, as eight digits"""


class PendingSaves:
    """The saves that are not committed, the oldest first."""

    def __init__(self) -> None:
        self._saves: list[PendingSave] = []

    def __bool__(self) -> bool:
        return bool(self._saves)

    def add(self, save: PendingSave) -> None:
        """Add a save; its number is higher than all before it."""
        self._saves.append(save)

    def rewards(self) -> dict[str, bytes]:
        """Return the lists of episodes that are not in the results yet: the next checkpoint needs them, too."""
        return {number: text for save in self._saves for number, text in save.rewards.items()}

    def take_committed(self, number: int | None) -> list[PendingSave]:
        """
        Remove the saves that a committed one covers, and return them.

        :param number: of the newest save that is committed; None if none is
        """
        covered = [save for save in self._saves if number is not None and save.number <= number]
        self._saves = self._saves[len(covered) :]
        return covered
