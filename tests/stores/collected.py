"""A sink for tests."""

from __future__ import annotations

import threading

from lattice.core.keyspace import Batch, KeyValue, Removed
from lattice.errors import LatticeError
from tests.waiting import eventually


class Collected:
    """A sink that remembers, and can be asked from the test's thread."""

    def __init__(self) -> None:
        self.items: list[Batch | LatticeError] = []
        self._lock = threading.Lock()

    def __call__(self, item: Batch | LatticeError) -> None:
        with self._lock:
            self.items.append(item)

    @property
    def batches(self) -> list[Batch]:
        with self._lock:
            return [item for item in self.items if isinstance(item, Batch)]

    @property
    def errors(self) -> list[LatticeError]:
        with self._lock:
            return [item for item in self.items if isinstance(item, LatticeError)]

    @property
    def changes(self) -> list[KeyValue | Removed]:
        return [change for batch in self.batches for change in batch.changes]

    def names(self) -> list[str]:
        """Name what changed: the key, with a minus in front if it went away; only the last part of it."""
        return [("-" if isinstance(change, Removed) else "") + change.key.rsplit("/", 1)[1] for change in self.changes]

    def wait(self, count: int, within: float = 30.0) -> list[KeyValue | Removed]:
        """Wait for that many changes."""
        eventually(lambda: len(self.changes) >= count, within)
        return self.changes
