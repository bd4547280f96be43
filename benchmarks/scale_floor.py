"""What a round cannot cost less than: as many clients as there are agents, and nothing but bare calls."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable

from lattice.core.keyspace import Batch, CreatedAt, KeyValue, Put, Transaction
from lattice.core.records import NodeRecord
from lattice.errors import LatticeError
from lattice.stores.etcd import EtcdStore

TTL = 120.0
CLIENTS = "/lattice-floor/"
BELL = "/lattice-floor-bell"
"""what all clients watch: it is written when they have all done their part, as a round is"""
MESSAGE = bytes(600)
"""as long as the record of a round of a thousand nodes"""


class Floor:
    """
    The clients of one process: a connection and a thread for each, as agents have.

    :param endpoint: where etcd is
    :param count: how many
    """

    def __init__(self, endpoint: tuple[str, int], count: int, request_timeout: float) -> None:
        self._stores = [EtcdStore((endpoint,), request_timeout=request_timeout) for _ in range(count)]
        self._leases = [0] * count
        self._keys = [CLIENTS + os.urandom(8).hex() for _ in range(count)]
        record = NodeRecord("0" * 18, "node-00000.cluster.example", "10.0.0.0", (20000,), 8, None, NodeRecord.READY)
        self._value = record.encode()
        self._heard: list[queue.SimpleQueue[object]] = [queue.SimpleQueue() for _ in range(count)]

    def wave(self, what: str, begun: Callable[[], None]) -> float:
        """
        Have every client do one thing, all at the same time.

        :param what: register (connect, make a lease, write a key under it), write (again), read (it), leave; join (what
            an agent does for a first round: connect, make a lease, write a key and look, watch, hear), or again (what
            it does for a later one: hear, write, hear)
        :param begun: called when all are at it
        :return: when the last was done
        """
        deeds: dict[str, Callable[[int], None]] = {
            "register": self._register,
            "write": self._write,
            "read": self._read,
            "leave": self._leave,
            "join": self._join,
            "again": self._again,
        }
        threads = [threading.Thread(target=deeds[what], args=(number,)) for number in range(len(self._stores))]
        for thread in threads:
            thread.start()
        begun()
        for thread in threads:
            thread.join()
        return time.monotonic()

    def _register(self, number: int) -> None:
        self._leases[number] = self._stores[number].grant(TTL)
        self._write(number)

    def _write(self, number: int) -> None:
        put = Put(self._keys[number], self._value, self._leases[number])
        self._stores[number].commit(Transaction((put,)))

    def _read(self, number: int) -> None:
        self._stores[number].read(self._keys[number])

    def _join(self, number: int) -> None:
        store, key, heard = self._stores[number], self._keys[number], self._heard[number]
        self._leases[number] = store.grant(TTL)
        put = Put(key, self._value, self._leases[number])
        found = store.commit(Transaction((put,), (CreatedAt(key, 0),), read=BELL))
        store.watch(BELL, found.revision, heard.put)
        heard.get()

    def _again(self, number: int) -> None:
        self._heard[number].get()
        self._write(number)
        self._heard[number].get()

    def _leave(self, number: int) -> None:
        self._stores[number].revoke(self._leases[number])
        self._stores[number].close()


class Conductor:
    """Stands in for a leader where there are only bare clients: rings the bell, and sees when all have written."""

    def __init__(self, store: EtcdStore, nodes: int) -> None:
        self._store, self._nodes = store, nodes
        self._seen: set[str] = set()
        self._all = threading.Event()
        self._watch = store.watch(CLIENTS, store.read(CLIENTS).revision, self._see)

    def _see(self, item: Batch | LatticeError) -> None:
        if isinstance(item, Batch):
            self._seen |= {change.key for change in item.changes if isinstance(change, KeyValue)}
            if len(self._seen) >= self._nodes:
                self._all.set()

    def ring(self) -> None:
        """Have all clients hear something."""
        self._store.commit(Transaction((Put(BELL, MESSAGE),)))

    def wait(self, within: float) -> None:
        """Wait until all clients have written."""
        if not self._all.wait(within):
            raise TimeoutError(f"{len(self._seen)} of {self._nodes} clients wrote within {within:.0f}s")
        self._watch.cancel()
