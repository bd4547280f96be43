"""The store of a simulation: the real state machine on virtual time, behind a network that may be slow or gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from lattice.core.keyspace import Batch, Commit, Put, Snapshot, Transaction
from lattice.core.keyvalue import KeyValueMachine, below

if TYPE_CHECKING:
    from tests.simulation.world import World

UNRELATED = Transaction((Put("/lattice/another-run/key", b""),))
"""what other runs write"""
REAPING = 0.5
"""seconds between two looks for lapsed leases, as in etcd"""


class Watcher(Protocol):
    """Whoever follows a prefix."""

    prefix: str

    def push(self, batch: Batch) -> None: ...

    def broke(self, reason: str) -> None: ...


class SimulatedStore:
    """One store, which may be away for a while, come back empty, or be slow."""

    def __init__(self, world: World, latency: tuple[float, float], spike: float) -> None:
        self.world = world
        self.machine = KeyValueMachine()
        self.identity = 1
        """the name of the data, another one after each loss: the first client writes it into an empty store"""
        self.up = True
        self.refuses = False
        """while it is away: whether callers learn that at once, or wait in silence"""
        self.latency = latency
        self.spike = spike
        """how likely a message is held up for longer than callers wait"""
        self.watchers: list[Watcher] = []
        self.committed: Callable[[str, Transaction | None, Batch], None] = lambda writer, transaction, batch: None
        self.away_since = 0.0
        self.reset: Callable[[], None] = lambda: None
        world.later(REAPING, self._reap)

    def delay(self) -> float:
        """Draw how long a message is on its way."""
        low, high = self.latency
        if self.spike and self.world.chance(self.spike):
            return self.world.between(0.5, 3.0)
        return self.world.between(low, high)

    def commit(self, writer: str, transaction: Transaction) -> Commit:
        commit, batch = self.machine.commit(transaction, self.world.now)
        if batch is not None:
            self._publish(writer, transaction, batch)
        return commit

    def read(self, prefix: str) -> Snapshot:
        return self.machine.read(prefix, prefix=True)

    def revoke(self, writer: str, lease: int) -> None:
        if not self.up:
            return
        batch = self.machine.revoke(lease)
        if batch is not None:
            self._publish(writer, None, batch)

    def go_away(self, refuses: bool) -> None:
        """Stop answering."""
        self.world.note("store", f"away ({'refuses' if refuses else 'silent'})")
        self.up, self.refuses, self.away_since = False, refuses, self.world.now
        if refuses:
            self._break_watches("the connection was reset")

    def come_back(self, *, lapsed: bool, emptied: str = "") -> None:
        """
        Answer again.

        :param lapsed: whether leases ran on meanwhile
        :param emptied: "wiped" if it lost everything, "refilled" if other runs have also written into it since, up to
            a higher revision than before; empty if it kept its data
        """
        if self.up:
            return
        self.world.note("store", "back" + (", empty" if emptied else ", leases ran on" if lapsed else ""))
        self.up = True
        if emptied:
            known, self.machine = self.machine.revision, KeyValueMachine()
            self.identity += 1
            while emptied == "refilled" and self.machine.revision <= known:
                self.machine.commit(UNRELATED, self.world.now)
            self.reset()
            self._break_watches("the watch is from another life of the store")
        elif not lapsed:
            self.machine.postpone(self.world.now - self.away_since)

    def _break_watches(self, reason: str) -> None:
        broken, self.watchers = self.watchers, []
        for watcher in broken:
            watcher.broke(reason)

    def _publish(self, writer: str, transaction: Transaction | None, batch: Batch) -> None:
        self.committed(writer, transaction, batch)
        for watcher in tuple(self.watchers):
            part = below(batch, watcher.prefix)
            if part is not None:
                watcher.push(part)

    def _reap(self) -> None:
        machine, now = self.machine, self.world.now
        if self.up:
            due = machine.next_expiry()
            if due is not None and due <= now:
                for batch in machine.expire(now):
                    self._publish("the store", None, batch)
        self.world.later(REAPING, self._reap)
