"""A key-value store with revisions, leases and history as a plain state machine: the same calls, the same answers."""

from __future__ import annotations

from collections import deque
from dataclasses import field
from itertools import islice

from lattice.core.dataclass import dataclass
from lattice.core.keyspace import (
    Batch,
    Commit,
    CreatedAt,
    Delete,
    KeyValue,
    ModifiedAt,
    Put,
    Removed,
    Snapshot,
    Transaction,
)
from lattice.errors import Compacted, StoreRefused, StoreUnavailable

MAX_OPERATIONS = 128
"""operations or guards in one transaction: what etcd accepts by default, so that nobody relies on more"""
MARKER = "/lattice/%store"
"""key of a random value that names the data of an etcd: written by the first client, and gone when etcd is wiped"""
_NAMING = 3
"""operations that a transaction which reads needs for itself: to read, and to look for the marker or write it"""


@dataclass(slots=True)
class _Lease:
    ttl: float
    deadline: float
    keys: set[str] = field(default_factory=set)


class KeyValueMachine:
    """
    What etcd does, without etcd: no clock, no thread, no lock. Time is what the caller says it is.

    Invariants: every revision but the first has exactly one batch with at least one change; a key is in the set of
    its lease and in no other; keys of a lapsed lease stay readable until :meth:`expire` is called.

    :param history: how many changes are kept for watches that begin in the past
    """

    def __init__(self, history: int = 10_000) -> None:
        self.revision = 1
        self._items: dict[str, KeyValue] = {}
        self._leases: dict[int, _Lease] = {}
        self._last_lease = 0
        self._history: deque[Batch] = deque()
        self._kept = 0
        self._limit = history
        self._compacted = 1

    def read(self, key: str, *, prefix: bool = False) -> Snapshot:
        """Read one key, or everything that begins with it, in key order."""
        if prefix:
            return Snapshot(tuple(self._items[name] for name in self._below(key)), self.revision)
        item = self._items.get(key)
        return Snapshot(() if item is None else (item,), self.revision)

    def commit(self, transaction: Transaction, now: float) -> tuple[Commit, Batch | None]:
        """
        Apply a transaction if its guards hold.

        :param now: leases that lapse at or before this moment count as gone
        :return: the answer, and what changed if anything did
        :raises StoreUnavailable: if a lease it names does not exist
        :raises StoreRefused: if no store could apply it: too many operations, or a key written twice
        """
        check(transaction)
        for guard in transaction.guards:
            if _revision(self._items.get(guard.key), guard) != guard.revision:
                return self._answer(False, transaction), None
        for operation in transaction.operations:
            if isinstance(operation, Put) and operation.lease and not self._alive(operation.lease, now):
                raise StoreUnavailable(f"key {operation.key!r} names lease {operation.lease:x}, which does not exist.")
        revision = self.revision + 1
        changes: list[KeyValue | Removed] = []
        for operation in transaction.operations:
            if isinstance(operation, Put):
                changes.append(self._put(operation, revision))
            elif operation.prefix:
                changes.extend([self._remove(key, revision) for key in self._below(operation.key)])
            elif operation.key in self._items:
                changes.append(self._remove(operation.key, revision))
        batch = self._record(changes)
        return self._answer(True, transaction), batch

    def grant(self, ttl: float, now: float, lease: int = 0) -> int:
        """Make a lease that lapses ``ttl`` seconds from ``now``; one of that id that exists is kept as it is."""
        if not lease:
            lease = self._last_lease + 1
            while lease in self._leases:
                lease += 1
            self._last_lease = lease
        if lease not in self._leases:
            self._leases[lease] = _Lease(ttl, now + ttl)
        return lease

    def keep_alive(self, lease: int, now: float) -> float:
        """Renew a lease and tell the seconds it now has, 0 if it does not exist or has lapsed."""
        if not self._alive(lease, now):
            return 0.0
        held = self._leases[lease]
        held.deadline = now + held.ttl
        return held.ttl

    def remaining(self, lease: int, now: float) -> float:
        """Tell how many seconds a lease has left, 0 if it does not exist or has lapsed."""
        return self._leases[lease].deadline - now if self._alive(lease, now) else 0.0

    def revoke(self, lease: int) -> Batch | None:
        """End a lease and remove its keys at one revision."""
        held = self._leases.pop(lease, None)
        if held is None:
            return None
        revision = self.revision + 1
        return self._record([self._remove(key, revision) for key in sorted(held.keys)])

    def expire(self, now: float) -> tuple[Batch, ...]:
        """Revoke every lease that has lapsed, in the order in which they lapsed."""
        lapsed = sorted((held.deadline, lease) for lease, held in self._leases.items() if held.deadline <= now)
        return tuple(batch for _, lease in lapsed if (batch := self.revoke(lease)) is not None)

    def next_expiry(self) -> float | None:
        """Tell when the next lease lapses unless it is kept alive."""
        return min((held.deadline for held in self._leases.values()), default=None)

    def postpone(self, seconds: float) -> None:
        """Give every lease more time, as when the store itself was stopped and could not hear anyone."""
        for held in self._leases.values():
            held.deadline += seconds

    def since(self, prefix: str, after: int) -> tuple[Batch, ...]:
        """
        Tell what changed below a prefix, one batch for each revision.

        :param after: the last revision that the caller knows
        :raises Compacted: if changes after that revision are no longer kept
        """
        # Nothing happened at the first revision, so nobody can have missed it.
        after = max(after, 1)
        if after < self._compacted:
            raise Compacted(f"revision {after} is no longer kept, the oldest is {self._compacted}.")
        # The oldest batch that is kept is that of the revision after _compacted, and none is missing.
        batches = islice(self._history, after - self._compacted, None)
        return tuple(found for batch in batches if (found := below(batch, prefix)) is not None)

    def compact(self, revision: int) -> None:
        """Forget the changes up to and including a revision."""
        while self._history and self._history[0].revision <= revision:
            oldest = self._history.popleft()
            self._kept -= len(oldest.changes)
            self._compacted = oldest.revision

    def _answer(self, succeeded: bool, transaction: Transaction) -> Commit:
        found = self.read(transaction.read, prefix=True).items if transaction.read else ()
        return Commit(succeeded, self.revision, found)

    def _alive(self, lease: int, now: float) -> bool:
        held = self._leases.get(lease)
        return held is not None and held.deadline > now

    def _below(self, prefix: str) -> list[str]:
        return sorted([key for key in self._items if key.startswith(prefix)])

    def _put(self, put: Put, revision: int) -> KeyValue:
        old = self._items.get(put.key)
        created = revision if old is None else old.create_revision
        if old is not None and old.lease:
            self._leases[old.lease].keys.discard(put.key)
        if put.lease:
            self._leases[put.lease].keys.add(put.key)
        new = KeyValue(put.key, put.value, created, revision, put.lease)
        self._items[put.key] = new
        return new

    def _remove(self, key: str, revision: int) -> Removed:
        old = self._items.pop(key)
        if old.lease in self._leases:
            self._leases[old.lease].keys.discard(key)
        return Removed(key, revision)

    def _record(self, changes: list[KeyValue | Removed]) -> Batch | None:
        if not changes:
            return None
        self.revision += 1
        batch = Batch(tuple(changes), self.revision)
        self._history.append(batch)
        self._kept += len(changes)
        while self._kept > self._limit:
            self.compact(self._history[0].revision)
        return batch


def below(batch: Batch, prefix: str) -> Batch | None:
    """Take the part of a batch that lies below a prefix, None if there is none."""
    changes = tuple([change for change in batch.changes if change.key.startswith(prefix)])
    if len(changes) == len(batch.changes):
        return batch
    return Batch(changes, batch.revision) if changes else None


def _revision(item: KeyValue | None, guard: CreatedAt | ModifiedAt) -> int:
    if item is None:
        return 0
    return item.create_revision if isinstance(guard, CreatedAt) else item.mod_revision


def check(transaction: Transaction) -> None:
    """
    Refuse what etcd would refuse, whatever the guards say.

    :raises StoreRefused: for an empty key, more operations or guards than etcd takes, or a key changed twice
    """
    operations, reads = transaction.operations, bool(transaction.read)
    if len(operations) + _NAMING * reads > MAX_OPERATIONS or len(transaction.guards) + reads > MAX_OPERATIONS:
        limit = f"{MAX_OPERATIONS} operations and {MAX_OPERATIONS} guards"
        raise StoreRefused(f"a transaction takes at most {limit}, and what it reads counts as {_NAMING} operations.")
    written = {MARKER} if reads else set()
    deleted: list[Delete] = []
    for operation in operations:
        if isinstance(operation, Delete):
            deleted.append(operation)
            continue
        if not operation.key:
            raise StoreRefused("a transaction writes a key without a name.")
        if operation.key in written:
            raise StoreRefused(f"a transaction writes {operation.key!r} twice.")
        written.add(operation.key)
    for removal in deleted:
        for key in written:
            if key == removal.key or (removal.prefix and key.startswith(removal.key)):
                raise StoreRefused(f"a transaction writes and deletes {key!r}.")
