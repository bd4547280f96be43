"""The agent's thread for the store: keeps the lease, watches, writes in order, and comes back by itself."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from lattice.core.dataclass import dataclass
from lattice.core.events import (
    Changed,
    Connected,
    Disconnected,
    Event,
    KeepAlive,
    ReadRoster,
    ReadView,
    Revoke,
    RosterRead,
    StoreFailed,
    Viewed,
    Write,
    Written,
)
from lattice.core.keyspace import Batch
from lattice.core.records import Keys, RosterRecord
from lattice.errors import Compacted, LatticeError, StoreRefused, StoreUnavailable
from lattice.stores import Store, Watch

StoreEffect = Write | ReadView | ReadRoster | KeepAlive | Revoke
LONGEST_PAUSE = 1.0
"""seconds between two tries to reach the store, at most"""
ALWAYS = -1
"""the epoch of an order that no reconnection makes void"""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SessionConnected(Connected):
    """Connected, with the number of the connection: what was asked for in an earlier one is void."""

    epoch: int = 0


class _EndAskedError(Exception):
    """Asked to end."""


class Session:
    """
    One agent's dealings with the store.

    Any failure, of a call or of the watch, ends the connection: the store is read anew on the next one, so nothing
    depends on an event that was missed.
    """

    def __init__(self, store: Store, keys: Keys, ttl: float, put: Callable[[Event], None]) -> None:
        self._store = store
        self._keys = keys
        self._ttl = ttl
        self._put = put
        self._orders: queue.SimpleQueue[tuple[int, Callable[[], None]]] = queue.SimpleQueue()
        self._epoch = 0
        self._lease = 0
        self._run_lease = 0
        self._next_run_beat = 0.0
        self._watch: Watch | None = None
        self._identity = ""
        self._revision = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-session", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def perform(self, effect: StoreEffect, epoch: int) -> None:
        """Have an effect performed after those before it, unless the connection it was meant for is over."""
        self._orders.put((epoch, lambda: self._perform(effect)))

    def ask(self, question: Callable[[Store], T], within: float) -> T | None:
        """Ask the store something from outside of the protocol; None if there is no answer in time."""
        answers: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._orders.put((self._epoch, lambda: answers.put(question(self._store))))
        try:
            return answers.get(timeout=within)
        except queue.Empty:
            return None

    def close(self, within: float = 3.0) -> None:
        """Perform what is queued, give the lease back, which tells the others, and end."""

        def leave() -> None:
            if self._lease:
                self._store.revoke(self._lease)
            raise _EndAskedError

        self._orders.put((ALWAYS, leave))
        self._closing.set()
        self._thread.join(within)
        self._store.close()

    # -- everything below runs in the session's thread ------------------------------------------------------------

    def _run(self) -> None:
        pause = 0.05
        while True:
            began = time.monotonic()
            try:
                self._connect()
                self._serve()
            except _EndAskedError:
                break
            except (StoreUnavailable, Compacted) as error:
                self._put(Disconnected(time.monotonic(), str(error).rstrip(".")))  # part of a longer sentence
            except StoreRefused as error:
                self._put(StoreFailed(time.monotonic(), str(error)))
                break
            except Exception as error:  # a fault of ours: the agent must end by it, not hang without a store
                self._put(
                    StoreFailed(time.monotonic(), f"the session with the store broke: {error!r}; please report it.")
                )
                raise
            finally:
                self._unwatch()
            if time.monotonic() - began > 2 * LONGEST_PAUSE:
                pause = 0.05
            if self._closing.wait(pause):
                break
            pause = min(2 * pause, LONGEST_PAUSE)

    def _connect(self) -> None:
        snapshot = self._store.read(self._keys.control, prefix=True)
        identity = snapshot.identity
        if identity != self._identity:
            self._lease = 0  # another store: a lease of this number there is somebody else's
        if not self._lease or self._store.keep_alive(self._lease) <= 0:
            self._lease = self._store.grant(self._ttl)
        self._run_lease = 0
        emptied = bool(self._identity) and (identity != self._identity or snapshot.revision < self._revision)
        self._identity, self._revision = identity, snapshot.revision
        self._epoch += 1
        now = time.monotonic()
        self._put(SessionConnected(now, self._lease, snapshot.items, snapshot.revision, emptied, self._epoch))
        self._follow(self._keys.control, snapshot.revision)

    def _serve(self) -> None:
        beat = self._ttl / 3
        next_beat = time.monotonic() + beat
        while True:
            try:
                epoch, order = self._orders.get(timeout=max(next_beat - time.monotonic(), 0))
            except queue.Empty:
                pass
            else:
                if epoch in (self._epoch, ALWAYS):
                    order()
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + beat
                self._beat()

    def _beat(self) -> None:
        if self._store.keep_alive(self._lease) <= 0:
            self._lease = 0
            raise StoreUnavailable("this node's lease lapsed: it was suspended, or its messages came too late")
        self._keep_run()

    def _keep_run(self) -> None:
        if self._run_lease and time.monotonic() >= self._next_run_beat:
            left = self._store.keep_alive(self._run_lease)
            self._next_run_beat = time.monotonic() + left / 3

    def _follow(self, prefix: str, after: int) -> None:
        epoch = self._epoch

        def sink(item: Batch | LatticeError) -> None:
            if isinstance(item, Batch):
                self._revision = max(self._revision, item.revision)
                self._put(Changed(time.monotonic(), item))
                return

            def broken() -> None:
                raise item

            self._orders.put((epoch, broken))

        self._watch = self._store.watch(prefix, after, sink)

    def _unwatch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()

    def _perform(self, effect: StoreEffect) -> None:
        match effect:
            case Write():
                self._write(effect)
            case ReadView(whole=whole):
                self._unwatch()
                prefix = self._keys.root if whole else self._keys.control
                snapshot = self._store.read(prefix, prefix=True)
                self._put(Viewed(time.monotonic(), whole, snapshot.items, snapshot.revision))
                self._follow(prefix, snapshot.revision)
            case ReadRoster(number=number, key=key, whole=whole):
                found = self._store.read(key, prefix=whole).items
                entries = [entry for item in found for entry in RosterRecord.decode(item.value).entries]
                self._put(RosterRead(time.monotonic(), number, tuple(entries)))
            case KeepAlive(lease=lease):
                self._run_lease, self._next_run_beat = lease, 0.0
                self._keep_run()  # at once: nobody may have done it since the last leader was gone
            case Revoke(lease=lease):
                self._store.revoke(lease)

    def _write(self, effect: Write) -> None:
        for lease, ttl in effect.grants:
            self._store.grant(ttl, lease)
        for transaction in effect.transactions:
            commit = self._store.commit(transaction)
            self._revision = max(self._revision, commit.revision)
            if not commit.succeeded:
                break
        self._put(Written(time.monotonic(), effect.tag, commit.succeeded, commit.revision))
