"""Nobody is let in, or believed, without the secret."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading

import pytest

from lattice.errors import StoreRefused, StoreUnavailable
from lattice.stores import served_server
from lattice.stores.memory import MemoryStore
from lattice.stores.served import StoreServer
from lattice.stores.served_frames import DIGEST, GREETING, MAGIC, NONCE, REFUSAL, Sealer, proof
from lattice.stores.served_values import dump
from tests.stores.conftest import SECRET
from tests.stores.serving import Raw, behind, client, server

__all__ = ["behind", "server"]


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
