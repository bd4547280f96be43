"""An agent's dealings with the store of its run: the node's lease, what changes, and writes in order."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from typing import TypeVar

from lattice.agent.conversation import Conversation, EndAsked
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
from lattice.core.keyspace import Batch, KeyValue, Transaction
from lattice.core.records import Keys, NodeRecord, RosterRecord
from lattice.errors import Compacted, LatticeError, StoreRefused, StoreUnavailable
from lattice.stores import Store

StoreEffect = Write | ReadView | ReadRoster | KeepAlive | Revoke
T = TypeVar("T")
Greet = Callable[[int], tuple[NodeRecord, Transaction]]
"""makes what is sent first of all, bound to a lease; called once the store has answered"""


@dataclass(frozen=True, slots=True)
class SessionConnected(Connected):
    """Connected, with the number of the connection: what was asked for in an earlier one is void."""

    epoch: int = 0


class Session(Conversation):
    """One agent's dealings with the store."""

    lapsed = "this node's lease lapsed: it was suspended, or its messages came too late"

    def __init__(self, store: Store, keys: Keys, ttl: float, put: Callable[[Event], None], greet: Greet) -> None:
        super().__init__(store, ttl, "store-session")
        self._greet = greet
        self._keys = keys
        self._put = put
        self._run_lease = 0
        self._next_run_beat = 0.0
        self._revision = 0

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
            raise EndAsked

        self._end(leave, within)
        self._store.close()

    # -- everything below runs in the session's thread ------------------------------------------------------------

    def _goes_on_after(self, error: LatticeError) -> bool:
        match error:
            case StoreUnavailable() | Compacted():
                self._put(Disconnected(time.monotonic(), str(error).rstrip(".")))  # part of a longer sentence
                return True
            case StoreRefused():
                self._put(StoreFailed(time.monotonic(), str(error)))
            case _:
                self._broke(error)
        return False

    def _broke(self, error: Exception) -> None:
        # The agent must end by it, not hang without a store.
        self._put(StoreFailed(time.monotonic(), f"the session with the store broke: {error!r}; please report it."))

    def _connect(self) -> None:
        if not self._identity:
            self._begin()
            return
        # The lease before the data: if the store is emptied between the two, or after them and before the watch, then
        # this lease is gone as well, and the next heartbeat finds that out.
        kept = self._lease != 0 and self._store.keep_alive(self._lease) > 0
        if not kept:
            self._lease = self._store.grant(self._ttl)
        found = self._store.commit(Transaction((), read=self._keys.control))
        identity = found.identity
        if kept and identity != self._identity:
            self._lease = self._store.grant(self._ttl)  # a lease of that number there is another client's
        # A lower revision means a backup of the same data: it lacks what was written last. That it is not lower means
        # nothing: other runs may have written as much into an emptied store before this agent was back.
        emptied = identity != self._identity or found.revision < self._revision
        self._connected(identity, found.items, found.revision, emptied=emptied)

    def _begin(self) -> None:
        """Connect for the first time: in most cases this node has joined once it has asked what there is."""
        self._lease = self._store.grant(self._ttl)
        record, transaction = self._greet(self._lease)
        found = self._store.commit(transaction)
        greeting = record if found.succeeded else None
        self._connected(found.identity, found.items, found.revision, greeting=greeting)

    def _connected(
        self,
        identity: str,
        items: tuple[KeyValue, ...],
        revision: int,
        *,
        emptied: bool = False,
        greeting: NodeRecord | None = None,
    ) -> None:
        self._run_lease = 0
        self._identity, self._revision = identity, revision
        self._epoch += 1
        self._put(SessionConnected(time.monotonic(), self._lease, items, revision, emptied, greeting, self._epoch))
        self._follow(self._keys.control, revision, self._take)

    def _beat(self) -> None:
        super()._beat()
        self._keep_run()

    def _keep_run(self) -> None:
        if self._run_lease and time.monotonic() >= self._next_run_beat:
            left = self._store.keep_alive(self._run_lease)
            self._next_run_beat = time.monotonic() + left / 3

    def _take(self, batch: Batch) -> None:
        self._revision = max(self._revision, batch.revision)
        self._put(Changed(time.monotonic(), batch))

    def _perform(self, effect: StoreEffect) -> None:
        match effect:
            case Write():
                self._write(effect)
            case ReadView(whole=whole):
                self._unwatch()
                prefix = self._keys.root if whole else self._keys.control
                snapshot = self._store.read(prefix, prefix=True)
                self._put(Viewed(time.monotonic(), whole, snapshot.items, snapshot.revision))
                self._follow(prefix, snapshot.revision, self._take)
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
