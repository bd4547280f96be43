"""
The worker's half of the promise that nothing is lost or taken in twice. No clock, no network.

A trajectory stays here until the learner has it in a checkpoint. After each greeting the learner says up to where it
has taken them, and the rest is sent again: a learner that came back from an older checkpoint gets what it forgot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Outbox(Generic[T]):
    """Finished trajectories, in the order of their numbers."""

    def __init__(self, credit: int, limit: int) -> None:
        """
        Begin with nothing.

        :param credit: how many may be under way to the learner
        :param limit: how many may be kept here in all
        """
        if not 1 <= credit <= limit:
            raise ValueError(f"credit {credit} must be at least 1 and at most the limit, {limit}")
        self.credit, self.limit = credit, limit
        self._kept: deque[tuple[int, T]] = deque()
        self._last = 0
        self._sent = 0
        self._taken = 0
        self.session = ""
        """of the learner that we have greeted; empty if we have to"""

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def full(self) -> bool:
        """Tell whether there is no room: only a checkpoint of the learner makes some."""
        return len(self._kept) >= self.limit

    @property
    def untaken(self) -> int:
        """Tell how many the learner does not have, as far as we know."""
        return self._last - self._taken

    @property
    def next_number(self) -> int:
        """Give the number of the next one."""
        return self._last + 1

    @property
    def first_number(self) -> int:
        """Give the number of the first that is still here, or of the next one."""
        return self._kept[0][0] if self._kept else self.next_number

    def put(self, item: T) -> int:
        """
        Add one.

        :return: its number
        """
        if self.full:
            raise OverflowError(f"{self.limit} trajectories wait for a checkpoint of the learner")
        self._last += 1
        self._kept.append((self._last, item))
        return self._last

    def to_send(self) -> Iterator[tuple[int, T]]:
        """Give what may be sent now; it counts as sent."""
        if not self.session:
            return
        for number, item in list(self._kept):
            if number <= self._sent:
                continue
            if number - self._taken > self.credit:
                return
            self._sent = number
            yield number, item

    def lost_sight(self) -> None:
        """Hear that the learner may be gone, or another: it has to be greeted before anything else."""
        self.session = ""

    def welcomed(self, session: str, taken: int, kept: int) -> None:
        """
        Hear the answer to a greeting: what is not taken will be sent again.

        A second answer, to a greeting that was repeated meanwhile, says no more than any other word of the learner.

        :param session: of the learner
        :param taken: the number up to which it has ours
        :param kept: the number up to which they are in a checkpoint
        """
        if self.session == session:
            self.acknowledged(session, taken, kept)
            return
        self.session = session
        self._taken = self._sent = min(taken, self._last)
        self._forget(kept)

    def acknowledged(self, session: str, taken: int, kept: int) -> bool:
        """
        Hear how far the learner is.

        :return: false if this is not the learner that we have greeted
        """
        if session != self.session:
            return False
        self._taken = max(self._taken, min(taken, self._last))
        self._sent = max(self._sent, self._taken)
        self._forget(kept)
        return True

    def _forget(self, kept: int) -> None:
        while self._kept and self._kept[0][0] <= kept:
            self._kept.popleft()
