"""The pure store against a deliberately dumb one that keeps every state it ever had."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from lattice.core.keyspace import Batch, CreatedAt, KeyValue, Put, Removed, Transaction
from lattice.core.keyvalue import KeyValueMachine, below
from lattice.errors import Compacted, StoreUnavailable
from tests.random_transactions import LEASES, PREFIXES, random_transaction

HISTORY = 20

Change = KeyValue | Removed


@dataclass
class Dumb:
    """All states by revision; everything else is found by looking."""

    states: list[dict[str, KeyValue]] = field(default_factory=lambda: [{}, {}])
    leases: dict[int, tuple[float, float]] = field(default_factory=dict)
    log: list[tuple[int, Change]] = field(default_factory=list)

    @property
    def revision(self) -> int:
        return len(self.states) - 1

    @property
    def now(self) -> dict[str, KeyValue]:
        return self.states[-1]

    def commit(self, transaction: Transaction, time: float) -> bool | None:
        for guard in transaction.guards:
            item = self.now.get(guard.key, KeyValue("", b"", 0, 0))
            if guard.revision != (item.create_revision if isinstance(guard, CreatedAt) else item.mod_revision):
                return False
        if any(
            isinstance(one, Put) and one.lease and not self.alive(one.lease, time) for one in transaction.operations
        ):
            return None
        state, revision = dict(self.now), self.revision + 1
        log: list[Change] = []
        for operation in transaction.operations:
            if isinstance(operation, Put):
                created = state[operation.key].create_revision if operation.key in state else revision
                state[operation.key] = KeyValue(operation.key, operation.value, created, revision, operation.lease)
                log.append(state[operation.key])
                continue
            for key in sorted(state):
                if key == operation.key or (operation.prefix and key.startswith(operation.key)):
                    del state[key]
                    log.append(Removed(key, revision))
        self.record(state, log)
        return True

    def alive(self, lease: int, time: float) -> bool:
        return lease in self.leases and self.leases[lease][1] > time

    def end(self, lease: int) -> None:
        del self.leases[lease]
        gone = sorted(key for key, item in self.now.items() if item.lease == lease)
        state = {key: item for key, item in self.now.items() if key not in gone}
        self.record(state, [Removed(key, self.revision + 1) for key in gone])

    def record(self, state: dict[str, KeyValue], log: list[Change]) -> None:
        if log:
            self.states.append(state)
            self.log += [(self.revision, change) for change in log]


class Comparison:
    """Does the same to both, and looks for a difference after every step."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.machine = KeyValueMachine(history=HISTORY)
        self.dumb = Dumb()
        self.time = 0.0
        self.told: list[Change] = []

    def step(self) -> None:
        actions = (self.commit, self.commit, self.commit, self.grant, self.keep_alive, self.revoke, self.wait)
        self.chance.choice(actions)()
        self.compare_state()
        self.compare_changes()

    def commit(self) -> None:
        transaction = random_transaction(self.chance, self.dumb.now)
        expected = self.dumb.commit(transaction, self.time)
        if expected is None:
            with pytest.raises(StoreUnavailable):
                self.machine.commit(transaction, self.time)
            return
        commit, batch = self.machine.commit(transaction, self.time)
        assert (commit.succeeded, commit.revision) == (expected, self.dumb.revision)
        found = [item for key, item in sorted(self.dumb.now.items()) if key.startswith(transaction.read)]
        assert list(commit.items) == (found if transaction.read else [])
        self.hear(batch)

    def grant(self) -> None:
        lease, ttl = self.chance.choice(LEASES), self.chance.choice((2.0, 5.0, 600.0))
        assert self.machine.grant(ttl, self.time, lease) == lease
        self.dumb.leases.setdefault(lease, (ttl, self.time + ttl))

    def keep_alive(self) -> None:
        lease = self.chance.choice(LEASES)
        ttl, deadline = self.dumb.leases.get(lease, (0.0, -1.0))
        alive = self.dumb.alive(lease, self.time)
        assert self.machine.remaining(lease, self.time) == (deadline - self.time if alive else 0)
        assert self.machine.keep_alive(lease, self.time) == (ttl if alive else 0)
        if alive:
            self.dumb.leases[lease] = (ttl, self.time + ttl)

    def revoke(self) -> None:
        lease = self.chance.choice(LEASES)
        self.hear(self.machine.revoke(lease))
        if lease in self.dumb.leases:
            self.dumb.end(lease)

    def wait(self) -> None:
        self.time += self.chance.choice((0.5, 1.0, 3.0))
        if self.chance.random() < 0.3:
            return  # A lease may lapse some time before anybody looks.
        for batch in self.machine.expire(self.time):
            self.hear(batch)
        lapsed = [(held[1], lease) for lease, held in self.dumb.leases.items() if held[1] <= self.time]
        for _, lease in sorted(lapsed):
            self.dumb.end(lease)

    def hear(self, batch: Batch | None) -> None:
        if batch is not None:
            assert batch.changes
            self.told += batch.changes

    def compare_state(self) -> None:
        assert self.machine.revision == self.dumb.revision
        for prefix in PREFIXES:
            expected = tuple(self.dumb.now[key] for key in sorted(self.dumb.now) if key.startswith(prefix))
            assert self.machine.read(prefix, prefix=True).items == expected
        assert self.machine.next_expiry() == min((held[1] for held in self.dumb.leases.values()), default=None)

    def compare_changes(self) -> None:
        assert self.told == [change for _, change in self.dumb.log]
        for prefix in PREFIXES:
            for after in {0, 1, self.dumb.revision // 2, self.dumb.revision - 1, self.dumb.revision, 1000}:
                later = [change for revision, change in self.dumb.log if revision > after]
                expected = [change for change in later if change.key.startswith(prefix)]
                try:
                    batches = self.machine.since(prefix, after)
                except Compacted:
                    assert len(later) > HISTORY
                else:
                    assert [change for batch in batches for change in batch.changes] == expected
                    assert len({batch.revision for batch in batches}) == len(batches)


@pytest.mark.parametrize("seed", range(60))
def test_it_does_what_the_dumb_one_does(seed: int) -> None:
    comparison = Comparison(seed)
    for _ in range(80):
        comparison.step()


def test_history_is_bounded() -> None:
    machine = KeyValueMachine(history=10)
    for number in range(30):
        machine.commit(Transaction((Put("a", b"%d" % number),)), 0.0)
    assert machine.revision == 31
    assert [batch.revision for batch in machine.since("a", 21)] == list(range(22, 32))
    with pytest.raises(Compacted, match="21"):
        machine.since("a", 20)


def test_chosen_leases_skip_those_that_were_given() -> None:
    machine = KeyValueMachine()
    assert machine.grant(1, 0.0, lease=2) == 2
    assert [machine.grant(1, 0.0) for _ in range(3)] == [1, 3, 4]


def test_leases_lapse_in_order_and_each_at_its_own_revision() -> None:
    machine = KeyValueMachine()
    late, early = machine.grant(5, 0.0), machine.grant(4, 0.0)
    machine.commit(Transaction((Put("late", b"", late), Put("early", b"", early), Put("early2", b"", early))), 1.0)
    assert machine.expire(3.9) == ()
    assert machine.expire(9.0) == (
        Batch((Removed("early", 3), Removed("early2", 3)), 3),
        Batch((Removed("late", 4),), 4),
    )
    assert machine.next_expiry() is None


def test_postponed_leases_live_longer() -> None:
    machine = KeyValueMachine()
    lease = machine.grant(5, 0.0)
    machine.postpone(10)
    assert machine.expire(14.0) == ()
    assert machine.remaining(lease, 14.0) == 1.0


def test_below_keeps_what_is_below() -> None:
    batch = Batch((Removed("a/1", 3), Removed("b", 3)), 3)
    assert below(batch, "a/") == Batch((Removed("a/1", 3),), 3)
    assert below(batch, "") is batch
    assert below(batch, "c") is None
