"""What registering cannot cost less than: as many clients as there are agents, and nothing but bare calls."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from lattice.core.keyspace import Put, Transaction
from lattice.core.records import NodeRecord
from lattice.stores.etcd import EtcdStore

TTL = 120.0
ROOT = "/lattice-floor/"


class Floor:
    """
    The clients of one process: a connection and a thread for each, as agents have.

    :param endpoint: where etcd is
    :param count: how many
    """

    def __init__(self, endpoint: tuple[str, int], count: int, request_timeout: float) -> None:
        self._stores = [EtcdStore((endpoint,), request_timeout=request_timeout) for _ in range(count)]
        self._leases = [0] * count
        self._keys = [ROOT + os.urandom(8).hex() for _ in range(count)]
        record = NodeRecord("0" * 18, "node-00000.cluster.example", "10.0.0.0", (20000,), 8, None, NodeRecord.READY)
        self._value = record.encode()

    def wave(self, what: str) -> float:
        """
        Have every client do one thing, all at the same time.

        :param what: register (connect, make a lease, write a key under it), write (again), read (it), or leave
        :return: when the last was done
        """
        deeds = {"register": self._register, "write": self._write, "read": self._read, "leave": self._leave}
        deed: Callable[[int], None] = deeds[what]
        threads = [threading.Thread(target=deed, args=(number,)) for number in range(len(self._stores))]
        for thread in threads:
            thread.start()
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

    def _leave(self, number: int) -> None:
        self._stores[number].revoke(self._leases[number])
        self._stores[number].close()
