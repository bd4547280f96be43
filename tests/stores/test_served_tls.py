"""A store behind TLS: who has no certificate, or another, is not let in or believed, and nobody reads along."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from binascii import b2a_base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from lattice.errors import LatticeError, StoreRefused, StoreUnavailable, UsageError
from lattice.launching.certificate import certificate_of, make_text
from lattice.stores import served_server
from lattice.stores.memory import MemoryStore
from lattice.stores.served import ServedStore, StoreServer, served_at
from lattice.stores.served_frames import secret_of
from lattice.stores.served_tls import client_context, server_context
from tests.stores.collected import Collected
from tests.stores.serving import behind, put
from tests.waiting import eventually, pass_time

__all__ = ["behind"]
Contexts = tuple[ssl.SSLContext, ssl.SSLContext]
"""of the server, and of its clients"""
PASSWORD = "correct horse battery staple"
SECRET = secret_of(PASSWORD, "run")
HIDDEN = b"a value that only the nodes may see"


def made(folder: Path, name: str) -> Contexts:
    """Make a certificate as jobs have it; for the server, and for clients."""
    text = make_text()
    (folder / f"{name}.pem").write_bytes(text)
    (folder / f"{name}.crt").write_bytes(certificate_of(text))
    both = str(folder / f"{name}.pem")
    return server_context(both, both), client_context(str(folder / f"{name}.crt"))


@pytest.fixture
def contexts(tmp_path: Path) -> Contexts:
    return made(tmp_path, "store")


@pytest.fixture
def server(behind: MemoryStore, contexts: Contexts) -> Iterator[StoreServer]:
    server = StoreServer(behind, "127.0.0.1", 0, SECRET, contexts[0])
    yield server
    server.close()


@contextlib.contextmanager
def client(
    port: int, tls: ssl.SSLContext | None, secret: bytes = SECRET, timeout: float = 20.0
) -> Iterator[ServedStore]:
    store = served_at((("127.0.0.1", port),), secret, timeout, tls)
    try:
        yield store
    finally:
        store.close()


def test_only_who_has_the_certificate_and_the_password_gets_in(
    server: StoreServer, contexts: Contexts, tmp_path: Path
) -> None:
    with client(server.port, None, timeout=1.0) as plain, pytest.raises(StoreUnavailable, match="no answer within 1s"):
        plain.identity()
    other = made(tmp_path, "other")[1]
    with client(server.port, other) as stranger, pytest.raises(StoreRefused, match=r"is not trusted.*cacert"):
        stranger.identity()
    with client(server.port, contexts[1], b"wrong") as guesser, pytest.raises(StoreRefused, match="RDZV_PASSWORD"):
        guesser.identity()
    with client(server.port, contexts[1]) as known:
        assert known.identity()


def test_a_server_without_tls_is_not_believed(behind: MemoryStore, contexts: Contexts) -> None:
    plain = StoreServer(behind, "127.0.0.1", 0, SECRET)
    with client(plain.port, contexts[1]) as store, pytest.raises(StoreUnavailable, match="does not speak TLS"):
        store.identity()
    plain.close()


class Recorder:
    """Stands between a client and a server, and keeps all that passes."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.seen = b""
        self._thread = threading.Thread(target=self._work)

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()

    def _work(self) -> None:
        near, _ = self._listener.accept()
        with near, socket.create_connection(("127.0.0.1", self._port)) as far:
            ways = {near: far, far: near}
            while True:
                for end in select.select(list(ways), [], [])[0]:
                    data = end.recv(1 << 16)
                    self.seen += data
                    if not data:
                        return
                    ways[end].sendall(data)


@pytest.mark.parametrize("secured", [True, False])
def test_who_listens_sees_nothing(behind: MemoryStore, contexts: Contexts, secured: bool) -> None:
    serving, asking = contexts if secured else (None, None)
    server = StoreServer(behind, "127.0.0.1", 0, SECRET, serving)
    with Recorder(server.port) as recorder, client(recorder.port, asking) as store:
        put(store, "/lattice/run/nodes/secret-key", HIDDEN)
        assert store.read("/lattice/run/nodes/secret-key").items[0].value == HIDDEN
    server.close()
    value = b2a_base64(HIDDEN, newline=False)  # as it is in a frame
    assert (value in recorder.seen, b"secret-key" in recorder.seen) == (not secured, not secured)
    assert PASSWORD.encode() not in recorder.seen and SECRET not in recorder.seen


def test_much_goes_both_ways_at_the_same_time(server: StoreServer, contexts: Contexts) -> None:
    with client(server.port, contexts[1], timeout=60) as one, client(server.port, contexts[1], timeout=60) as two:
        seen = Collected()
        watch = two.watch("k", 0, seen)
        large = bytes(range(256)) * 8192  # 2 MB: many records, and more than a socket holds

        def write(name: str) -> None:
            for number in range(4):
                put(one, f"k{name}{number}", large)

        threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        eventually(lambda: len(seen.changes) == 12, within=60)
        watch.cancel()
        assert all(item.value == large for item in two.read("k", prefix=True).items)


def test_strangers_cost_nothing_and_go(server: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_connection(("127.0.0.1", server.port), 30) as silent:
        before = time.process_time()
        pass_time(1.0)
        assert time.process_time() - before < 0.5, "it waits for the handshake in a loop"
        monkeypatch.setattr(served_server, "HANDSHAKE_TIMEOUT", 0.2)
        loud = socket.create_connection(("127.0.0.1", server.port), 30)
        with loud, contextlib.suppress(ConnectionResetError):
            loud.sendall(b"LATTICE1" + bytes(500))
            while loud.recv(1000):
                pass
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(1000) == b""


def test_a_store_that_is_started_again_is_found_again(
    server: StoreServer, behind: MemoryStore, contexts: Contexts
) -> None:
    with client(server.port, contexts[1]) as store:
        put(store, "a", b"1")
        server.close()
        with pytest.raises(LatticeError):
            store.read("a")
        again = StoreServer(behind, "127.0.0.1", server.port, SECRET, contexts[0])
        try:
            assert eventually(lambda: found(store)) == b"1"
        finally:
            again.close()


def found(store: ServedStore) -> bytes:
    try:
        return store.read("a").items[0].value
    except StoreUnavailable:
        return b""


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("none")
    with pytest.raises(UsageError, match=r"cacert is '.*/x'"):
        client_context(str(tmp_path / "x"))
    with pytest.raises(UsageError, match=r"cert is '.*/x', key is '.*/y'"):
        server_context(str(tmp_path / "x"), str(tmp_path / "y"))
