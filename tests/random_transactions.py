"""Random but mostly sensible transactions, for comparing one store with another."""

from __future__ import annotations

import random
from collections.abc import Mapping

from lattice.core.keyspace import CreatedAt, Delete, KeyValue, ModifiedAt, Put, Transaction
from lattice.core.keyvalue import check
from lattice.errors import StoreRefused

KEYS = ("a", "a/1", "a/2", "b/1", "b/2", "c")
PREFIXES = ("", "a", "a/", "b/", "nothing")
LEASES = (0x101, 0x102, 0x103)


def random_transaction(chance: random.Random, state: Mapping[str, KeyValue]) -> Transaction:
    """
    Make a transaction that any store accepts, though its guards may fail and its leases may be gone.

    :param chance: where it comes from
    :param state: what the store holds, so that guards often hold
    """
    while True:
        operations = tuple(_operation(chance) for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 5))))
        guards = tuple(_guard(chance, state) for _ in range(chance.choice((0, 0, 1, 1, 2))))
        transaction = Transaction(operations, guards, chance.choice(("", "", *PREFIXES)))
        try:
            check(transaction)
        except StoreRefused:
            continue
        return transaction


def _operation(chance: random.Random) -> Put | Delete:
    if chance.random() < 0.7:
        lease = chance.choice((0, 0, 0, *LEASES))
        return Put(chance.choice(KEYS), chance.randbytes(chance.randrange(4)), lease)
    if chance.random() < 0.6:
        return Delete(chance.choice(KEYS))
    return Delete(chance.choice(PREFIXES), prefix=True)


def _guard(chance: random.Random, state: Mapping[str, KeyValue]) -> CreatedAt | ModifiedAt:
    item = state.get(chance.choice(KEYS)) or KeyValue(chance.choice(KEYS), b"", 0, 0)
    error = chance.choice((0, 0, 0, 0, 0, 0, 0, 1))
    if chance.random() < 0.5:
        return CreatedAt(item.key, item.create_revision + error)
    return ModifiedAt(item.key, item.mod_revision + error)
