"""The learner's checkpoints: :mod:`lattice.checkpoint`, or none."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Protocol

from lattice.checkpoint import Checkpointer
from lattice.rl.settings import LearnerSettings

FOLDER = "state"


class Keeper(Protocol):
    """What is used of a checkpointer."""

    def save(self, step: int, state: Mapping[str, Any], metric: float | None = None) -> bool:
        """Keep a state; tell whether it is kept."""

    @property
    def committed_step(self) -> int | None:
        """Return the step of the newest save that the log has."""

    def restore(self, default: Any) -> tuple[Any, int]:
        """Give the newest state."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all is written, or refused."""

    def close(self) -> None:
        """Wait until all is written."""


class Saving:
    """Saves and restores; without a place for it, what is in memory is all there is."""

    def __init__(self, keeper: Keeper | None) -> None:
        self._keeper = keeper
        self._newest: int | None = None
        self.saved_at = time.monotonic()
        """moment of the last one"""

    @staticmethod
    def of(settings: LearnerSettings) -> Saving:
        """Find out where the checkpoints are."""
        where = settings.checkpoint
        if where is None or (where == "" and settings.results is None):
            return Saving(None)
        if where == "":
            assert settings.results is not None
            where = f"{os.fspath(settings.results).rstrip('/')}/{FOLDER}"
        return Saving(Checkpointer(where, keep_last=settings.keep_last))

    def save(self, number: int, state: Mapping[str, Any], metric: float | None) -> bool:
        """
        Keep a state.

        :return: whether a crash of this process does not lose it any more
        """
        self.saved_at = time.monotonic()
        taken = self._keeper is None or self._keeper.save(number, state, metric=metric)
        if taken:
            self._newest = number
        return taken

    @property
    def committed(self) -> int | None:
        """
        Return the number of the newest save, or of the restored one, that the log has; does not wait.

        Without a place all that was saved counts: nothing that workers kept could be used after a restart.
        """
        return self._newest if self._keeper is None else self._keeper.committed_step

    @property
    def under_way(self) -> bool:
        """Check whether the newest save of this life is not committed yet."""
        return self._newest is not None and (self.committed is None or self.committed < self._newest)

    def wait(self, timeout: float) -> bool:
        """
        Wait until all that was saved is committed, or refused.

        :param timeout: seconds
        :return: whether it is
        """
        return self._keeper is None or self._keeper.wait(timeout)

    def restore(self) -> Mapping[str, Any] | None:
        """Give the newest state, if there is one."""
        if self._keeper is None:
            return None
        state, _ = self._keeper.restore(None)
        found: Mapping[str, Any] | None = state
        return found

    def close(self) -> None:
        """Wait until all is written."""
        if self._keeper is not None:
            self._keeper.close()
