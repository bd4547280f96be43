"""A store inside this process: the pure machine with a lock, a clock, and watches that are told at once."""

from __future__ import annotations

import os
import threading
import time
from collections import deque

from lattice.core.dataclass import replace
from lattice.core.keyspace import Batch, Commit, Snapshot, Transaction
from lattice.core.keyvalue import KeyValueMachine, below
from lattice.errors import Compacted, LatticeError, StoreUnavailable
from lattice.stores import Sink

TICK = 0.5
"""seconds between two looks at the clock while there are leases"""
STALL = 2.0
"""seconds without a look at the clock after which this process must have been stopped, not merely busy"""


class MemoryWatch:
    """A running watch; made by :meth:`MemoryStore.watch`."""

    def __init__(self, lock: threading.Lock, prefix: str, after: int, sink: Sink) -> None:
        self.prefix = prefix
        self.after = after
        self.cancelled = False
        self.pending: deque[Batch | LatticeError] = deque()
        self._idle = threading.Condition(lock)
        self._sink = sink
        self._drainer: int | None = None

    def offer(self, batch: Batch) -> bool:
        """
        Queue what the watch should see of a batch. The store's lock is held.

        :return: whether there is something to deliver
        """
        part = below(batch, self.prefix) if batch.revision > self.after and not self.cancelled else None
        if part is not None:
            self.pending.append(part)
        return part is not None

    def deliver(self) -> None:
        """
        Call the sink with all that is queued, in this thread, unless another call is at it already.

        No lock is held meanwhile, so a sink may use the store; the one who delivers also takes what is queued then.
        """
        with self._idle:
            if self._drainer is not None:
                return
            self._drainer = threading.get_ident()
        try:
            while True:
                with self._idle:
                    if not self.pending:
                        # Given up under the same lock as the look: whoever queues next sees that nobody delivers.
                        self._release()
                        return
                    item = self.pending.popleft()
                self._sink(item)
        except BaseException:
            with self._idle:
                self._release()
            raise

    def cancel(self) -> None:
        """End it; after this returns the sink is not called again."""
        with self._idle:
            self.cancelled = True
            self.pending.clear()
            if self._drainer != threading.get_ident():
                self._idle.wait_for(lambda: self._drainer is None)

    def _release(self) -> None:
        self._drainer = None
        self._idle.notify_all()


class MemoryStore:
    """
    The store contract for the agents of one process.

    Leases are forgiving in one way: time in which this process was stopped as a whole, and so could not hear anyone,
    counts against no lease.

    :param history: how many changes are kept for watches that begin in the past
    """

    def __init__(self, history: int = 10_000) -> None:
        self._lock = threading.Lock()
        self._granted = threading.Condition(self._lock)
        self._machine = KeyValueMachine(history)
        self._identity = os.urandom(8).hex()
        self._watches: list[MemoryWatch] = []
        self._timer: threading.Thread | None = None
        self._seen = time.monotonic()
        self._closed = False

    def identity(self) -> str:
        """Name the data: every memory store has its own name."""
        return self._identity

    def read(self, key: str, *, prefix: bool = False) -> Snapshot:
        """Read one key, or everything that begins with it."""
        with self._lock:
            self._now()
            return self._machine.read(key, prefix=prefix)

    def commit(self, transaction: Transaction) -> Commit:
        """Apply a transaction if its guards hold; watches have seen it when this returns, or are just being told."""
        with self._lock:
            commit, batch = self._machine.commit(transaction, self._now())
            told = self._queue(batch)
        for watch in told:
            watch.deliver()
        return replace(commit, identity=self._identity) if transaction.read else commit

    def watch(self, prefix: str, after: int, sink: Sink) -> MemoryWatch:
        """Put every change below a prefix into a sink, beginning with the revision after ``after``."""
        watch = MemoryWatch(self._lock, prefix, after, sink)
        with self._lock:
            self._now()
            try:
                watch.pending.extend(self._machine.since(prefix, after))
                self._watches.append(watch)
            except Compacted as error:
                watch.pending.append(error)
        watch.deliver()
        return watch

    def grant(self, ttl: float, lease: int = 0) -> int:
        """Make a lease, or keep the one of that id."""
        with self._lock:
            granted = self._machine.grant(ttl, self._now(), lease)
            if self._timer is None:
                self._timer = threading.Thread(target=self._keep_time, name="lattice-leases", daemon=True)
                self._timer.start()
            self._granted.notify_all()
            return granted

    def keep_alive(self, lease: int) -> float:
        """Renew a lease and tell the seconds it now has, 0 if there is no such lease."""
        with self._lock:
            return self._machine.keep_alive(lease, self._now())

    def remaining(self, lease: int) -> float:
        """Tell how many seconds a lease has left, 0 if there is no such lease."""
        with self._lock:
            return self._machine.remaining(lease, self._now())

    def revoke(self, lease: int) -> None:
        """End a lease with all its keys."""
        with self._lock:
            self._now()
            told = self._queue(self._machine.revoke(lease))
        for watch in told:
            watch.deliver()

    def close(self) -> None:
        """End all watches, and the thread that lets leases lapse."""
        with self._lock:
            self._closed = True
            watches, self._watches = self._watches, []
            self._granted.notify_all()
        for watch in watches:
            watch.cancel()
        if self._timer is not None and self._timer is not threading.current_thread():
            self._timer.join()

    def _now(self) -> float:
        if self._closed:
            raise StoreUnavailable("the in-process store is closed.")
        now = time.monotonic()
        if now - self._seen > STALL:
            # The timer looks every TICK while there are leases. It could not, so nobody could renew one either.
            self._machine.postpone(now - self._seen)
        self._seen = now
        return now

    def _queue(self, *batches: Batch | None) -> list[MemoryWatch]:
        self._watches = [watch for watch in self._watches if not watch.cancelled]
        told = []
        for batch in batches:
            if batch is not None:
                told += [watch for watch in self._watches if watch.offer(batch)]
        return told

    def _keep_time(self) -> None:
        while True:
            with self._lock:
                if self._closed:
                    return
                told = self._queue(*self._machine.expire(self._now()))
                if not told:
                    expiry = self._machine.next_expiry()
                    wait = None if expiry is None else max(0.0, min(expiry - time.monotonic(), TICK))
                    self._granted.wait(wait)
            for watch in told:
                watch.deliver()
