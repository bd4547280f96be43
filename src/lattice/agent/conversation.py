"""A thread that talks to a store: keeps a lease, watches, does what it is told in order, and comes back by itself."""

from __future__ import annotations

import math
import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from lattice.core.keyspace import Batch
from lattice.errors import LatticeError, StoreUnavailable
from lattice.stores import Store, Watch

LONGEST_PAUSE = 1.0
"""seconds between two tries to reach the store, at most"""
ALWAYS = -1
"""the epoch of an order that no reconnection makes void"""


class EndAsked(Exception):
    """Asked to end; raised by the last order."""


class Conversation(ABC):
    """
    One of an agent's dealings with a store; what it is about is for those who inherit.

    Any failure, of a call or of the watch, ends the connection: the store is read anew on the next one, so nothing
    depends on an event that was missed.
    """

    lapsed: str
    """what to say of a lease that is gone though it was kept alive"""

    def __init__(self, store: Store, ttl: float, name: str) -> None:
        """
        Prepare.

        :param store: what to talk to
        :param ttl: seconds of the lease
        :param name: of the thread
        """
        self._store = store
        self._ttl = ttl
        self._orders: queue.SimpleQueue[tuple[int, Callable[[], None]]] = queue.SimpleQueue()
        self._epoch = 0
        self._lease = 0
        self._identity = ""
        self._watch: Watch | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def _end(self, last: Callable[[], None], within: float) -> None:
        """Do what is queued, then a last order, which raises :class:`EndAsked`, and wait for the end."""
        self._orders.put((ALWAYS, last))
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(within)

    # -- everything below runs in the thread ------------------------------------------------------------------------

    @abstractmethod
    def _connect(self) -> None:
        """Read what there is, have a lease, and follow what changes."""

    @abstractmethod
    def _goes_on_after(self, error: LatticeError) -> bool:
        """Hear why a connection ended; tell whether there should be another."""

    @abstractmethod
    def _broke(self, error: Exception) -> None:
        """Hear of a fault of ours, which ends the conversation."""

    def _do_what_is_due(self) -> float:
        """Do what no order asks for, and tell at which moment there is more of it."""
        return math.inf

    def _run(self) -> None:
        pause = 0.05
        while True:
            began = time.monotonic()
            try:
                self._connect()
                self._serve()
            except EndAsked:
                break
            except LatticeError as error:
                if not self._goes_on_after(error):
                    break
            except Exception as error:
                self._broke(error)
                raise
            finally:
                self._unwatch()
            if time.monotonic() - began > 2 * LONGEST_PAUSE:
                pause = 0.05
            if self._closing.wait(pause):
                break
            pause = min(2 * pause, LONGEST_PAUSE)

    def _serve(self) -> None:
        next_beat = time.monotonic() + self._ttl / 3
        while True:
            moment = min(next_beat, self._do_what_is_due())
            try:
                epoch, order = self._orders.get(timeout=max(moment - time.monotonic(), 0))
            except queue.Empty:
                pass
            else:
                if epoch in (self._epoch, ALWAYS):
                    order()
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + self._ttl / 3
                self._beat()

    def _beat(self) -> None:
        if self._store.keep_alive(self._lease) <= 0:
            self._lease = 0
            raise StoreUnavailable(self.lapsed)

    def _follow(self, prefix: str, after: int, take: Callable[[Batch], None]) -> None:
        """
        Watch.

        :param after: the revision that was read
        :param take: takes what changes, in another thread
        """
        epoch = self._epoch

        def sink(item: Batch | LatticeError) -> None:
            if isinstance(item, Batch):
                take(item)
                return

            def broken() -> None:
                raise item

            self._orders.put((epoch, broken))

        self._watch = self._store.watch(prefix, after, sink)

    def _unwatch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
