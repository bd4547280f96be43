"""A simulated agent's connection to the store: what the real one promises, at the mercy of the network."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from lattice.agent.inbox import merged
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
    Viewed,
    Write,
    Written,
)
from lattice.core.keyspace import Batch, Commit, Snapshot, Transaction
from lattice.core.member import greet
from lattice.core.records import RosterRecord
from lattice.errors import LatticeError

if TYPE_CHECKING:
    from tests.simulation.agent import SimulatedAgent
    from tests.simulation.store import SimulatedStore

TIMEOUT = 2.0
Operation = Callable[["SimulatedStore"], Any]
Calls = Generator[Operation, Any, None]


class Session:
    """Connects, performs effects in order, keeps leases alive, watches; any failure ends it, and it connects again."""

    def __init__(self, agent: SimulatedAgent, store: SimulatedStore) -> None:
        self.agent, self.store, self.world = agent, store, agent.world
        self.epoch = 0
        self.connected = False
        self.lease = 0
        self.kept = 0
        self.identity = 0
        self.revision = 0
        self.watch: Watch | None = None
        self.told = False
        self.backoff = 0.1
        self._queue: deque[Any] = deque()
        self._calls: Calls | None = None
        self.begun = 0.0

    @property
    def reachable(self) -> bool:
        return self.store.up and not self.agent.cut

    def connect(self, epoch: int = 0) -> None:
        if epoch != self.epoch:
            return
        self.epoch += 1
        self._drive(self._connecting(), None)

    def perform(self, effect: Any) -> None:
        """Take an effect; what comes while there is no connection is dropped, because the next one begins anew."""
        if isinstance(effect, Revoke) and not self.connected:
            return
        assert self.connected, f"{effect} without a connection"
        self._queue.append(effect)
        if self._calls is None:
            self._next()

    def close(self) -> None:
        """End it; a lease that is held is given back if the store can be reached."""
        if self.connected and self.reachable:
            lease, name = self.lease, self.agent.name
            self.world.later(self.store.delay(), lambda: self.store.revoke(name, lease))
        self.epoch += 1
        self._drop()

    def fail(self, reason: str, epoch: int | None = None) -> None:
        """Something went wrong: tell it once, and try anew."""
        if epoch is not None and epoch != self.epoch:
            return
        was = self.connected
        self._drop()
        self.epoch += 1
        self.backoff = 0.1 if was else min(self.backoff * 2, 1.0)
        epoch = self.epoch
        self.agent.later(self.backoff * self.world.between(0.5, 1.0), lambda: self.connect(epoch))
        if was or not self.told:
            self.told = True
            self.agent.take(Disconnected(self.world.now, reason))

    def _drop(self) -> None:
        self.connected = False
        self._queue.clear()
        self._calls = None
        self.kept = 0
        if self.watch is not None:
            self.watch.cancel()
            self.watch = None

    # -- calls -----------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        self._calls = None
        while self._calls is None and self._queue:
            self._drive(self._performing(self._queue.popleft()), None)

    def _drive(self, calls: Calls, result: Any) -> None:
        self._calls = calls
        epoch = self.epoch
        try:
            operation = calls.send(result)
        except StopIteration:
            if epoch == self.epoch:
                self._next()
            return
        self._call(calls, operation)

    def _call(self, calls: Calls, operation: Operation) -> None:
        epoch, sent, world = self.epoch, self.world.now, self.world
        there, back = self.store.delay(), self.store.delay()

        def lost() -> None:
            quick = self.store.refuses and not self.store.up and not self.agent.cut
            delay = world.between(0.0, 0.05) if quick else max(0.0, sent + TIMEOUT - world.now)
            self.agent.later(delay, lambda: self.fail("no answer", epoch))

        def arrive() -> None:
            # Also for an agent that died or gave up since: what is on its way arrives.
            if not self.reachable:
                lost()
                return
            try:
                result = operation(self.store)
            except LatticeError as error:
                result = error
            if there + back > TIMEOUT:
                lost()
            else:
                self.agent.later(back, lambda: answer(result))

        def answer(result: Any) -> None:
            if epoch != self.epoch:
                return
            if self.agent.cut:
                lost()
            elif isinstance(result, LatticeError):
                self.fail(str(result), epoch)
            else:
                self._drive(calls, result)

        if self.reachable:
            world.later(there, arrive)
        else:
            lost()

    def _connecting(self) -> Calls:
        world = self.world
        if not self.identity:
            yield from self._beginning()
            return
        ttl, lease = self.agent.policy.lease_ttl, self.lease
        kept = bool(lease) and (yield lambda store: store.machine.keep_alive(lease, world.now)) > 0
        if not kept:
            self.lease = 0
            yield from self._granting(ttl)
        prefix = self.agent.me.keys.control
        identity, snapshot = yield lambda store: (store.identity, store.read(prefix))
        if kept and identity != self.identity:
            yield from self._granting(ttl)
        emptied = identity != self.identity or snapshot.revision < self.revision
        self._connected(identity, Connected(world.now, self.lease, snapshot.items, snapshot.revision, emptied))

    def _granting(self, ttl: float) -> Calls:
        fresh = self.world.random.getrandbits(62) | 1
        self.lease = yield lambda store: store.machine.grant(ttl, self.world.now, fresh)

    def _beginning(self) -> Calls:
        agent, world = self.agent, self.world
        yield from self._granting(agent.policy.lease_ttl)
        record, greeting = greet(agent.me, agent.policy, agent.state.ports, self.lease)
        identity, found = yield lambda store: (store.identity, store.commit(agent.name, greeting))
        said = record if found.succeeded else None
        self._connected(identity, Connected(world.now, self.lease, found.items, found.revision, greeting=said))

    def _connected(self, identity: int, event: Connected) -> None:
        self.identity, self.revision = identity, event.revision
        self.connected, self.told, self.backoff, self.begun = True, True, 0.1, self.world.now
        self._follow(self.agent.me.keys.control, event.revision)
        epoch = self.epoch
        self.agent.later(self.agent.policy.lease_ttl / 3, lambda: self._beat(epoch))
        self.agent.take(event)

    def _performing(self, effect: Any) -> Calls:
        name, world = self.agent.name, self.world
        match effect:
            case Write(tag=tag, transactions=transactions, grants=grants):
                for lease, ttl in grants:
                    yield partial(_grant, lease, ttl)
                for transaction in transactions:
                    commit = yield partial(_commit, name, transaction)
                    self.revision = max(self.revision, commit.revision)
                    if not commit.succeeded:
                        break
                if not commit.succeeded:
                    self.agent.cluster.monitor.conflicted(self.agent, tag)
                self.agent.take(Written(world.now, tag, commit.succeeded, commit.revision))
            case ReadView(whole=whole):
                prefix = self.agent.me.keys.root if whole else self.agent.me.keys.control
                if self.watch is not None and world.chance(0.5):
                    self.watch.cancel()
                snapshot = yield lambda store: store.read(prefix)
                self.revision = max(self.revision, snapshot.revision)
                if self.watch is not None:
                    self.watch.cancel()
                epoch = self.epoch
                self.agent.take(Viewed(world.now, whole, snapshot.items, snapshot.revision))
                if epoch == self.epoch:
                    self._follow(prefix, snapshot.revision)
            case ReadRoster(number=number, key=key, whole=whole):
                entries: list[Any] = []
                snapshot = yield partial(_read, key, whole)
                for item in snapshot.items:
                    entries.extend(RosterRecord.decode(item.value).entries)
                self.agent.take(RosterRead(world.now, number, tuple(entries)))
            case KeepAlive(lease=lease):
                self.kept = lease
                if lease:
                    yield lambda store: store.machine.keep_alive(lease, world.now)
            case Revoke(lease=lease):
                yield lambda store: store.revoke(name, lease)

    # -- what goes on beside them ----------------------------------------------------------------------------------

    def _beat(self, epoch: int) -> None:
        """Keep the leases alive."""
        if epoch != self.epoch:
            return
        if not self.reachable:
            self.agent.later(TIMEOUT, lambda: self.fail("keepalive not answered", epoch))
            return
        if not self.store.machine.keep_alive(self.lease, self.world.now):
            self.lease = 0
            self.fail("the lease lapsed", epoch)
            return
        if self.kept:
            self.store.machine.keep_alive(self.kept, self.world.now)
        self.agent.later(self.agent.policy.lease_ttl / 3, lambda: self._beat(epoch))

    def _follow(self, prefix: str, after: int) -> None:
        self.watch = Watch(self, prefix)
        try:
            missed = self.store.machine.since(prefix, after)
        except LatticeError as error:
            epoch, reason = self.epoch, str(error)
            self.agent.later(0.0, lambda: self.fail(reason, epoch))
            return
        self.store.watchers.append(self.watch)
        for batch in missed:
            self.watch.push(batch)


class Watch:
    """Delivers changes in order, with delay, sometimes several at once; holds them back while the network is cut."""

    def __init__(self, session: Session, prefix: str) -> None:
        self.session, self.prefix, self.epoch = session, prefix, session.epoch
        self.cancelled = False
        self.held: list[Batch] = []
        self._late: list[Batch] = []
        """arrived, and waiting in the agent's inbox"""
        self._free_at = 0.0

    def push(self, batch: Batch) -> None:
        world = self.session.world
        self._free_at = max(self._free_at, world.now + self.session.store.delay())
        self.session.agent.later(self._free_at - world.now, lambda: self._deliver(batch))

    def broke(self, reason: str) -> None:
        agent, epoch = self.session.agent, self.epoch
        agent.later(self.session.world.between(0.0, 0.5), lambda: self.session.fail(reason, epoch))

    def cancel(self) -> None:
        self.cancelled = True
        if self in self.session.store.watchers:
            self.session.store.watchers.remove(self)

    def healed(self) -> None:
        held, self.held = self.held, []
        for batch in held:
            self._deliver(batch)

    def _deliver(self, batch: Batch) -> None:
        if self.cancelled:
            return
        agent, world = self.session.agent, self.session.world
        if agent.cut:
            self.held.append(batch)
            return
        self.session.revision = max(self.session.revision, batch.revision)
        self._late.append(batch)
        if len(self._late) > 1:
            return
        if world.chance(0.2):  # the agent is busy, and takes what has come by then as one
            agent.later(world.between(0.0, 0.1), self._take)
        else:
            self._take()

    def _take(self) -> None:
        late, self._late = self._late, []
        if late and not self.cancelled:
            changes = deque[Event](Changed(self.session.world.now, batch) for batch in late)
            for event in merged(changes):
                self.session.agent.take(event)


def _grant(lease: int, ttl: float, store: SimulatedStore) -> int:
    return store.machine.grant(ttl, store.world.now, lease)


def _commit(writer: str, transaction: Transaction, store: SimulatedStore) -> Commit:
    return store.commit(writer, transaction)


def _read(key: str, prefix: bool, store: SimulatedStore) -> Snapshot:
    return store.machine.read(key, prefix=prefix)
