"""
Where logs arrive: a thread of their own gives them to the handlers.

A terminal that is stopped or a handler that is slow holds up logs, and nothing else: results, the store and signs of
life pass by. What has not been taken yet stays in files on the hosts.
"""

from __future__ import annotations

import queue
import threading

from lattice.launching.handlers import Origin
from lattice.launching.logs import Logs
from lattice.launching.supervisor import Node


class Intake:
    """Takes what nodes send, for one run."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self._queue: queue.SimpleQueue[tuple[Node, int | None, str, bytes] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="logs", daemon=True)
        self._thread.start()

    def put(self, node: Node, local_rank: int | None, stream: str, data: bytes) -> None:
        """Take what came, from any thread."""
        self._queue.put((node, local_rank, stream, data))

    def close(self) -> None:
        """Give all that came to the handlers."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            node, local_rank, stream, data = item
            self._logs.feed(Origin(node.host.given, local_rank, node.host.index), stream, data)
            if local_rank is not None:
                node.took(len(data))
