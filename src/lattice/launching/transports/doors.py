"""How many connections may knock at one SSH server at a time: it turns away those that are too many."""

from __future__ import annotations

import threading
from collections import Counter

WIDTH = 8
"""sshd's own default lets ten unauthenticated connections in and drops some of those above; others may come, too."""


class Doors:
    """A count per door (a host with its port, or what is jumped over) of those that have not got through yet."""

    def __init__(self, width: int = WIDTH) -> None:
        self._changed = threading.Condition()
        self._inside: Counter[str] = Counter()
        self._width: dict[str, int] = {}
        self._default = width

    def enter(self, door: str, stopped: threading.Event) -> bool:
        """
        Wait for a place at a door.

        :param door: which
        :param stopped: ends the wait, with :meth:`wake`
        :return: whether there is one now, to be given back with :meth:`leave`
        """
        with self._changed:
            self._changed.wait_for(lambda: stopped.is_set() or self._inside[door] < self.width(door))
            if stopped.is_set():
                return False
            self._inside[door] += 1
            return True

    def leave(self, door: str) -> None:
        """Give the place back: through, or gone."""
        with self._changed:
            self._inside[door] -= 1
            self._changed.notify_all()

    def narrow(self, door: str) -> None:
        """Let half as many come from now on: one was turned away."""
        with self._changed:
            self._width[door] = max(1, self.width(door) // 2)

    def width(self, door: str) -> int:
        """Tell how many may be at a door."""
        return self._width.get(door, self._default)

    def wake(self) -> None:
        """Have all that wait look again whether they are stopped."""
        with self._changed:
            self._changed.notify_all()
