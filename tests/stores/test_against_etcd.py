"""The pure store against real etcd: the same transactions, the same answers, the same history."""

from __future__ import annotations

import random

import pytest

from lattice.core.keyspace import Commit, Put, Transaction
from lattice.core.keyvalue import MARKER, KeyValueMachine
from lattice.errors import StoreUnavailable
from lattice.stores.etcd import EtcdStore
from tests.etcd_server import EtcdServer
from tests.random_transactions import LEASES, random_transaction
from tests.stores.collected import Collected


def answer_of_etcd(store: EtcdStore, transaction: Transaction) -> Commit | str:
    try:
        return store.commit(transaction)
    except StoreUnavailable as error:
        assert "lease not found" in str(error)
        return "no lease"


def answer_of_machine(machine: KeyValueMachine, transaction: Transaction) -> Commit | str:
    try:
        return machine.commit(transaction, 0.0)[0]
    except StoreUnavailable:
        return "no lease"


def mark(machine: KeyValueMachine, store: EtcdStore) -> None:
    """Let etcd write the marker that names its data, and copy it."""
    store.identity()
    (marker,) = store.read(MARKER).items
    machine.commit(Transaction((Put(MARKER, marker.value),)), 0.0)


@pytest.mark.parametrize("seed", range(2))
def test_the_machine_answers_like_etcd(own_etcd: EtcdServer, seed: int) -> None:
    chance = random.Random(seed)
    machine, store = KeyValueMachine(), EtcdStore((own_etcd.endpoint,), request_timeout=10.0)
    assert store.read("a").revision == machine.revision == 1
    mark(machine, store)
    for _ in range(250):
        draw = chance.random()
        lease = chance.choice(LEASES)
        if draw < 0.08:
            assert store.grant(600, lease) == machine.grant(600, 0.0, lease) == lease
        elif draw < 0.14:
            store.revoke(lease)
            machine.revoke(lease)
        else:
            state = {item.key: item for item in machine.read("", prefix=True).items}
            transaction = random_transaction(chance, state)
            assert answer_of_etcd(store, transaction) == answer_of_machine(machine, transaction), transaction
            if not machine.read(MARKER).items:  # all keys were deleted
                mark(machine, store)
        assert store.read("", prefix=True) == machine.read("", prefix=True)
    expected = [change for batch in machine.since("", 0) for change in batch.changes]
    seen = Collected()
    store.watch("", 0, seen)
    assert seen.wait(len(expected)) == expected
    store.close()
