"""A memory store that is served, here or in a process of its own, and those who use it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from lattice.core.keyspace import Put, Transaction
from lattice.stores.memory import MemoryStore
from lattice.stores.served import ServedStore, StoreServer, served_at
from lattice.stores.served_frames import DIGEST, GREETING, MAGIC, NONCE, Opener, Sealer, proof
from lattice.stores.served_values import dump, load
from tests.stores.conftest import SECRET

SERVE = """
import sys
from lattice.stores.memory import MemoryStore
from lattice.stores.served import StoreServer
server = StoreServer(MemoryStore(), "127.0.0.1", int(sys.argv[1]), sys.argv[2].encode())
print(server.port, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def behind() -> Iterator[MemoryStore]:
    store = MemoryStore(history=50)
    yield store
    store.close()


@pytest.fixture
def server(behind: MemoryStore) -> Iterator[StoreServer]:
    server = StoreServer(behind, "127.0.0.1", 0, SECRET)
    yield server
    server.close()


@contextlib.contextmanager
def client(*ports: int, secret: bytes = SECRET, timeout: float = 10.0) -> Iterator[ServedStore]:
    store = served_at(tuple(("127.0.0.1", port) for port in ports), secret, timeout)
    try:
        yield store
    finally:
        store.close()


@contextlib.contextmanager
def process(port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server in a process of its own, which can be killed or stopped."""
    argv = [sys.executable, "-c", SERVE, str(port), SECRET.decode()]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield child, int(child.stdout.readline())
        finally:
            child.kill()


class Raw:
    """A client that does the handshake by hand and can then misbehave."""

    def __init__(self, port: int, secret: bytes = SECRET) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        greeting = self.receive(GREETING)
        self.theirs, self.ours = greeting[len(MAGIC) :], os.urandom(NONCE)
        self.socket.sendall(MAGIC + self.ours + proof(secret, "client", self.theirs, self.ours))
        self.answer = self.receive(DIGEST)
        self.sealer = Sealer(secret, "client", self.theirs, self.ours)
        self.opener = Opener(secret, "server", self.theirs, self.ours)

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self.socket.recv(size - len(data))):
            data += more
        return data

    def request(self, number: int, call: str, *args: object) -> bytes:
        return self.sealer.seal(dump({"id": number, "call": call, "args": args}))

    def ask(self, frame: bytes) -> object:
        self.socket.sendall(frame)
        return self.next()["result"]

    def next(self) -> dict[str, Any]:
        while not (bodies := self.opener.feed(self.socket.recv(65536))):
            pass
        return load(bodies[0])

    def is_dropped(self) -> bool:
        try:
            return self.receive(1) == b""
        except ConnectionResetError:
            return True


def put(store: ServedStore | MemoryStore, key: str, value: bytes = b"") -> None:
    store.commit(Transaction((Put(key, value),)))
