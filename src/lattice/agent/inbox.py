"""The one place where everything that happens to the agent arrives: any thread puts, the loop takes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator

from lattice.core.events import Changed, Event
from lattice.core.keyspace import Batch


def merged(events: deque[Event]) -> Iterator[Event]:
    """
    Take events in order, also those that are put meanwhile; changes that wait behind each other are taken as one.

    A leader looks at all nodes whenever something changes. When a thousand of them register, or stop, in the same
    second it would look a thousand times; this way it looks as often as it can, and no more.
    """
    while events:
        event = events.popleft()
        if isinstance(event, Changed) and events and isinstance(events[0], Changed):
            changes = list(event.batch.changes)
            while events and isinstance(following := events[0], Changed):
                changes += following.batch.changes
                event = following
                events.popleft()
            event = Changed(event.at, Batch(tuple(changes), event.batch.revision))
        yield event


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
        """Take what is there, as :func:`merged` gives it."""
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass
        return merged(self._events)

    def close(self) -> None:
        """Give the descriptor back."""
        bell, self._bell = self._bell, -1
        os.close(bell)
