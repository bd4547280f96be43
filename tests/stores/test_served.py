"""What only the served store promises, beside trust: it is shared, survives its server, and says what is wrong."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time

import pytest

from lattice.core.keyspace import Put, Transaction
from lattice.core.spec import StoreSpec
from lattice.errors import Compacted, StoreUnavailable, UsageError
from lattice.stores import open_store, secret
from lattice.stores.memory import MemoryStore
from lattice.stores.served import ServedStore, StoreServer, served_at
from tests.etcd_server import free_ports
from tests.stores.collected import Collected
from tests.stores.conftest import SECRET
from tests.stores.serving import Raw, behind, client, process, put, server
from tests.waiting import eventually, patience

__all__ = ["behind", "server"]


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
        assert threading.active_count() <= threads
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
        assert time.monotonic() - started < patience(20)
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


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_without_a_host_it_serves_whoever_comes(behind: MemoryStore) -> None:
    with contextlib.closing(StoreServer(behind, "", 0, SECRET)) as open_to_all:
        for host in ("127.0.0.1", "::1") if has_ipv6() else ("127.0.0.1",):
            with contextlib.closing(served_at(((host, open_to_all.port),), SECRET, 10.0)) as store:
                assert store.read("/", prefix=True).items == ()
