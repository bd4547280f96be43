"""What only the served store promises: nobody is let in, or believed, without the secret."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lattice.core.keyspace import Put, Transaction
from lattice.core.spec import StoreSpec
from lattice.errors import Compacted, StoreRefused, StoreUnavailable, UsageError
from lattice.stores import open_store, secret, served_server
from lattice.stores.memory import MemoryStore
from lattice.stores.served import ServedStore, StoreServer, served_at
from lattice.stores.served_frames import DIGEST, GREETING, MAGIC, NONCE, REFUSAL, Opener, Sealer, proof
from lattice.stores.served_values import dump, load
from tests.etcd_server import free_ports
from tests.stores.collected import Collected
from tests.stores.conftest import SECRET
from tests.waiting import eventually

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


def test_a_wrong_secret_is_refused_with_the_next_step(server: StoreServer) -> None:
    with (
        client(server.port, secret=b"wrong") as store,
        pytest.raises(StoreRefused, match=rf"127.0.0.1:{server.port}.*LATTICE_RDZV_PASSWORD"),
    ):
        store.read("a")


def test_a_server_that_does_not_know_the_secret_is_not_believed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def impostor() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(MAGIC + os.urandom(NONCE))
                hello = connection.recv(1000)
                connection.sendall(hello[-DIGEST:])  # The client's own proof, sent back.
                connection.recv(1)

        thread = threading.Thread(target=impostor)
        thread.start()
        with (
            client(listener.getsockname()[1]) as store,
            pytest.raises(StoreRefused, match="does not know our password"),
        ):
            store.read("a")
        thread.join()


def test_the_handshake_as_documented(server: StoreServer, behind: MemoryStore) -> None:
    raw = Raw(server.port)
    assert raw.answer == proof(SECRET, "server", raw.theirs, raw.ours)
    assert raw.ask(raw.request(1, "identity")) == behind.identity()
    raw.socket.close()
    stranger = Raw(server.port, b"wrong")
    assert stranger.answer == REFUSAL
    assert stranger.is_dropped()
    stranger.socket.close()


def test_a_replayed_frame_ends_the_connection(server: StoreServer, behind: MemoryStore) -> None:
    raw = Raw(server.port)
    frame = raw.request(1, "commit", [["put", "a", "", 0]], [])
    raw.ask(frame)
    revision = behind.read("a").revision
    raw.socket.sendall(frame)
    assert raw.is_dropped()
    assert behind.read("a").revision == revision
    raw.socket.close()


def test_a_frame_of_another_connection_is_not_accepted(server: StoreServer, behind: MemoryStore) -> None:
    first, second = Raw(server.port), Raw(server.port)
    second.socket.sendall(first.request(1, "commit", [["put", "a", "", 0]], []))
    assert second.is_dropped()
    assert behind.read("a").items == ()
    assert first.ask(
        Sealer(SECRET, "client", first.theirs, first.ours).seal(dump({"id": 1, "call": "identity", "args": []}))
    )
    first.socket.close()
    second.socket.close()


def test_a_frame_of_the_other_direction_is_not_accepted(server: StoreServer) -> None:
    raw = Raw(server.port)
    mirrored = Sealer(SECRET, "server", raw.theirs, raw.ours)
    raw.socket.sendall(mirrored.seal(dump({"id": 1, "call": "identity", "args": []})))
    assert raw.is_dropped()
    raw.socket.close()


@pytest.mark.parametrize("position", [0, 11, 20, -1])
def test_an_altered_frame_ends_the_connection(server: StoreServer, behind: MemoryStore, position: int) -> None:
    raw = Raw(server.port)
    frame = bytearray(raw.request(1, "commit", [["put", "a", "", 0]], []))
    frame[position] ^= 1 if position else 0x80
    raw.socket.sendall(frame)
    assert raw.is_dropped()
    assert behind.read("a").items == ()
    raw.socket.close()


def test_an_altered_answer_is_not_believed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def altering() -> None:
            connection, _ = listener.accept()
            with connection:
                theirs = os.urandom(NONCE)
                connection.sendall(MAGIC + theirs)
                ours = connection.recv(1000)[len(MAGIC) : len(MAGIC) + NONCE]
                connection.sendall(proof(SECRET, "server", theirs, ours))
                connection.recv(1000)
                frame = bytearray(Sealer(SECRET, "server", theirs, ours).seal(dump({"id": 1, "result": "data"})))
                frame[-40] ^= 1
                connection.sendall(frame)
                connection.recv(1)

        thread = threading.Thread(target=altering)
        thread.start()
        with client(listener.getsockname()[1]) as store, pytest.raises(StoreUnavailable, match="cannot be trusted"):
            store.identity()
        thread.join()


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 500, MAGIC + bytes(10_000), b"\x80\x04\x95pickle"]
)
def test_garbage_is_dropped_and_harms_nobody(server: StoreServer, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 30) as stranger, client(server.port) as store:
        stranger.sendall(garbage)
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(1000):
                pass
        assert store.identity()


def test_a_silent_stranger_is_dropped(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_server, "HANDSHAKE_TIMEOUT", 0.2)
    with socket.create_connection(("127.0.0.1", server.port), 30) as stranger, client(server.port) as store:
        assert len(stranger.recv(1000)) == GREETING
        assert stranger.recv(1000) == b""
        assert store.identity()


def test_only_so_many_strangers_at_once(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_server, "MAX_STRANGERS", 3)
    with contextlib.ExitStack() as stack:
        strangers = []
        for _ in range(5):
            strangers.append(stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 30)))
            assert len(strangers[-1].recv(1000)) == GREETING
        assert strangers[0].recv(1) == strangers[1].recv(1) == b""


def test_a_frame_that_is_too_long_is_not_waited_for(server: StoreServer) -> None:
    raw = Raw(server.port)
    raw.socket.sendall(struct.pack(">IQ", 1 << 31, 0))
    assert raw.is_dropped()
    raw.socket.close()


@pytest.mark.parametrize(
    "body", [b"[]", b"{", b'{"id":"x"}', b'{"id":1,"call":"commit","args":[["a"],[]]}', b"[" * 10**5]
)
def test_an_unreadable_request_ends_only_that_connection(server: StoreServer, body: bytes) -> None:
    raw = Raw(server.port)
    raw.socket.sendall(raw.sealer.seal(body))
    assert raw.is_dropped()
    raw.socket.close()
    with client(server.port) as store:
        assert store.identity()


def test_an_unknown_call_is_refused(server: StoreServer) -> None:
    raw = Raw(server.port)
    raw.socket.sendall(raw.request(1, "drop", "everything"))
    assert raw.next()["error"] == "StoreRefused"
    raw.socket.close()


def test_a_forgotten_revision_is_told(server: StoreServer, behind: MemoryStore) -> None:
    for _ in range(60):
        put(behind, "a")
    seen = Collected()
    with client(server.port) as store:
        store.watch("a", 2, seen)
        eventually(lambda: seen.items)
        assert [type(item) for item in seen.items] == [Compacted]


def test_the_server_s_own_process_and_its_clients_share_the_data(server: StoreServer, behind: MemoryStore) -> None:
    near, far = Collected(), Collected()
    with client(server.port) as store:
        assert store.identity() == behind.identity()
        behind.watch("k/", 1, near)
        store.watch("k/", 1, far)
        put(behind, "k/near")
        put(store, "k/far")
        behind.commit(Transaction((Put("k/lapses", b"", behind.grant(0.1)),)))
        far.wait(4)
        assert far.names() == near.names() == ["near", "far", "lapses", "-lapses"]


def test_a_sink_that_calls_its_store_is_told_off(server: StoreServer) -> None:
    errors: list[str] = []

    def sink(item: object) -> None:
        try:
            store.read("a")
        except RuntimeError as error:
            errors.append(str(error))

    with client(server.port) as store:
        store.watch("a", 1, sink)
        put(store, "a")
        eventually(lambda: errors)


def test_a_hundred_clients_cost_no_threads(server: StoreServer) -> None:
    threads = threading.active_count()
    with contextlib.ExitStack() as stack:
        raws = [Raw(server.port) for _ in range(100)]
        for raw in raws:
            stack.callback(raw.socket.close)
            assert raw.ask(raw.request(1, "watch", 7, "a", 1)) is None
        assert threading.active_count() == threads
        assert raws[0].ask(raws[0].request(2, "keep_alive", 5)) == 0
        raws[0].socket.sendall(raws[0].request(3, "commit", [["put", "a", "", 0]], []))
        for raw in raws:
            assert raw.next() == {"watch": 7, "batch": [[["a", "", 2, 2, 0]], 2]}


def test_a_server_that_is_gone_is_noticed_at_once_and_found_again(behind: MemoryStore) -> None:
    with process() as (child, port), client(port) as store:
        seen = Collected()
        store.watch("a", 1, seen)
        identity = store.identity()
        child.kill()
        child.wait()  # Its sockets are closed one after the other; now all of them are.
        eventually(lambda: seen.errors)
        assert "closed the connection" in str(seen.errors[0]) or "reset" in str(seen.errors[0])
        with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}: connection refused"):
            store.read("a")
        again = StoreServer(behind, "127.0.0.1", port, SECRET)
        assert store.identity() == behind.identity() != identity
        assert len(seen.items) == 1
        again.close()


def test_a_hung_server_is_noticed_by_the_timeout() -> None:
    with process() as (child, port), client(port, timeout=0.5) as store:
        seen = Collected()
        store.watch("a", 1, seen)
        os.kill(child.pid, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        with pytest.raises(StoreUnavailable, match="timed out"):
            store.read("a")
        eventually(lambda: seen.errors)
        with pytest.raises(StoreUnavailable, match="timed out"):
            store.read("a")
        os.kill(child.pid, signal.SIGCONT)
        eventually(lambda: _answers(store))


def test_a_server_that_does_not_read_blocks_nobody_for_long() -> None:
    with process() as (child, port), client(port, timeout=0.5) as store:
        store.identity()
        os.kill(child.pid, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)
        started = time.monotonic()
        with pytest.raises(StoreUnavailable, match="timed out"):
            put(store, "a", bytes(20 << 20))  # More than the kernel keeps for a process that does not read.
        assert time.monotonic() - started < 20
        child.kill()


def _answers(store: ServedStore) -> bool:
    try:
        return bool(store.identity())
    except StoreUnavailable:
        return False


def test_endpoints_take_turns(server: StoreServer) -> None:
    nobody = free_ports(1)[0]
    with client(nobody, server.port) as store:
        with pytest.raises(StoreUnavailable, match="connection refused"):
            store.identity()
        assert store.identity() == store.identity()


def test_what_is_no_store_is_called_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def web() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=web)
        thread.start()
        with client(listener.getsockname()[1]) as store, pytest.raises(StoreUnavailable, match="no Lattice store"):
            store.identity()
        thread.join()


def test_a_name_that_does_not_resolve_is_named() -> None:
    store = served_at((("nosuch.invalid", 1),), SECRET)
    with pytest.raises(StoreUnavailable, match=r"nosuch\.invalid does not resolve"):
        store.identity()


def test_a_port_that_is_taken_is_named(server: StoreServer, behind: MemoryStore) -> None:
    with pytest.raises(UsageError, match=rf"127.0.0.1:{server.port}: Address already in use.*--rdzv_endpoint"):
        StoreServer(behind, "127.0.0.1", server.port, SECRET)


def test_the_secret_comes_from_the_password_or_the_run() -> None:
    spec = StoreSpec("embedded", (("127.0.0.1", 1),))
    assert secret(spec, "a") == secret(spec, "a") != secret(spec, "b")
    protected = StoreSpec("embedded", (("127.0.0.1", 1),), password="run a")
    assert secret(protected, "a") == secret(protected, "b") != secret(spec, "a")


def test_stores_open_by_name(behind: MemoryStore) -> None:
    spec = StoreSpec("embedded", (("127.0.0.1", free_ports(1)[0]),), request_timeout=10.0)
    server = StoreServer(behind, *spec.endpoints[0], secret(spec, "run"))
    for asked in (StoreSpec(), spec):
        store = open_store(asked, "run")
        assert store.identity()
        store.close()
    server.close()
    with pytest.raises(UsageError, match=r"'redis'.*--rdzv_backend.*memory, etcd, embedded"):
        open_store(StoreSpec("redis"), "run")
