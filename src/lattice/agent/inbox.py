"""The one place where everything that happens to the agent arrives: any thread puts, the loop takes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator

from lattice.core.events import Event


class Inbox:
    """A queue with a descriptor that a selector can wait for."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """Give the descriptor that is readable while there is something to take."""
        return self._bell

    def put(self, event: Event) -> None:
        """Add an event; from any thread."""
        self._events.append(event)
        try:
            os.eventfd_write(self._bell, 1)
        except OSError:
            pass  # closed: nobody takes any more

    def take(self) -> Iterator[Event]:
        """Take what is there, in order, also what is put meanwhile."""
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass
        while self._events:
            yield self._events.popleft()

    def close(self) -> None:
        """Give the descriptor back."""
        bell, self._bell = self._bell, -1
        os.close(bell)
