"""Calling back: who is let in at a launcher that listens, whom a node trusts, and that nobody else does any harm."""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from lattice.launching import calling, reception
from lattice.launching.calling import Unreached, reach
from lattice.launching.certificate import COMMAND, make
from lattice.launching.reception import MOST, MOST_OF_ONE, TOKEN, Reception
from lattice.launching.secured import SecuredStream
from tests.waiting import eventually, patience

HERE = "127.0.0.1"
WITHIN = 60.0


class Desk:
    """A reception that listens here, and what it lets in."""

    def __init__(self, here: Reception) -> None:
        offer = here.offer([HERE])
        assert offer is not None, here.problem
        self.reception = here
        self.addresses = [(host, port) for host, port in offer["addresses"]]
        self.known_by = bytes.fromhex(offer["fingerprint"])
        self.arrived: queue.SimpleQueue[SecuredStream] = queue.SimpleQueue()

    def expect(self, token: bytes) -> None:
        self.reception.expect(hashlib.sha256(token).digest(), self.arrived.put)

    def reach(self, token: bytes) -> SecuredStream:
        return reach(self.addresses, self.known_by, token)

    def connect(self, source: str = HERE) -> socket.socket:
        return socket.create_connection(self.addresses[0], timeout=patience(WITHIN), source_address=(source, 0))

    def lose_patience(self, with_tokens: int = 0) -> None:
        """
        Let all time be over for those who are here, once they are.

        :param with_tokens: as many must have sent one
        """
        callers = self.reception._callers
        eventually(lambda: callers and sum(len(one.token) == TOKEN for one in tuple(callers)) >= with_tokens, WITHIN)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reception, "PATIENCE", 0.0)
            self.expect(b"nobody's")  # it looks again then
            eventually(lambda: not callers, WITHIN)

    def comes_in(self) -> None:
        """See that somebody who may is let in, and that both understand each other."""
        token = os.urandom(TOKEN)
        self.expect(token)
        theirs = self.reach(token)
        ours = self.arrived.get(timeout=patience(WITHIN))
        try:
            ours.write([b"to ", b"node"])
            theirs.write([b"to launcher"])
            assert (theirs.read(100), ours.read(100)) == (b"to node", b"to launcher")
        finally:
            ours.close()
            theirs.close()


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    for name in ("CALLING", "CONNECTING"):
        monkeypatch.setattr(calling, name, WITHIN)
    here = Reception()
    try:
        yield Desk(here)
    finally:
        here.close()


def hung_up(connection: socket.socket) -> bool:
    """Wait until the other side closes; it may say in TLS why."""
    try:
        while connection.recv(1000):
            pass
    except ConnectionResetError:
        pass
    return True


def anonymous() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def test_who_announced_itself_comes_in(desk: Desk) -> None:
    desk.comes_in()
    desk.comes_in()


def test_the_announcement_may_come_after_the_call(desk: Desk) -> None:
    token = os.urandom(TOKEN)
    found: queue.SimpleQueue[SecuredStream] = queue.SimpleQueue()
    calls = threading.Thread(target=lambda: found.put(desk.reach(token)))
    calls.start()
    eventually(lambda: any(len(caller.token) == TOKEN for caller in desk.reception._callers))
    assert desk.arrived.empty()
    desk.expect(token)
    calls.join()
    for stream in (found.get(timeout=patience(WITHIN)), desk.arrived.get(timeout=patience(WITHIN))):
        stream.close()


def test_much_in_both_directions_at_the_same_time(desk: Desk) -> None:
    token = os.urandom(TOKEN)
    desk.expect(token)
    theirs = desk.reach(token)
    ours = desk.arrived.get(timeout=patience(WITHIN))
    data = os.urandom(1 << 20) * 24
    got: dict[str, bytes] = {}
    crowded = [crowding(stream) for stream in (ours, theirs)]

    def read(name: str, stream: SecuredStream) -> None:
        whole = bytearray()
        while len(whole) < len(data) and (part := stream.read(1 << 20)):
            whole += part
        got[name] = bytes(whole)

    threads = [threading.Thread(target=read, args=item) for item in (("ours", ours), ("theirs", theirs))]
    threads += [threading.Thread(target=stream.write, args=([data[:7], data[7:]],)) for stream in (ours, theirs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(WITHIN))
    assert got["ours"] == data and got["theirs"] == data
    assert crowded == [[], []], "OpenSSL allows one thread at a time"
    theirs.end()  # seen by the other side, and by whoever reads on this one
    assert ours.read(10) == theirs.read(10) == b""
    for stream in (ours, theirs):
        stream.close()


def crowding(stream: SecuredStream) -> list[str]:
    """Note from now on what is done with a connection while another thread does something with it."""
    inside, found = threading.Lock(), []

    def alone(name: str, action: Callable[[Any], Any], argument: Any) -> Any:
        if not inside.acquire(blocking=False):
            found.append(name)
            return action(argument)
        try:
            return action(argument)
        finally:
            inside.release()

    for name in ("recv", "send"):
        setattr(stream._connection, name, partial(alone, name, getattr(stream._connection, name)))
    return found


def test_a_wrong_token_opens_nothing(desk: Desk) -> None:
    right = os.urandom(TOKEN)
    desk.expect(right)
    for wrong in (bytes(TOKEN), hashlib.sha256(right).digest(), right[:-1] + bytes([right[-1] ^ 1])):
        with anonymous().wrap_socket(desk.connect()) as stranger:
            stranger.sendall(wrong)
            desk.lose_patience(with_tokens=1)
            assert stranger.recv(100) == b""
    assert desk.arrived.empty()
    desk.comes_in()


def test_a_token_opens_once(desk: Desk) -> None:
    token = os.urandom(TOKEN)
    desk.expect(token)
    theirs = desk.reach(token)
    with anonymous().wrap_socket(desk.connect()) as again:
        again.sendall(token)
        desk.lose_patience(with_tokens=1)
        assert again.recv(100) == b""
    desk.arrived.get(timeout=patience(WITHIN)).close()
    theirs.close()


def half_of_a_token(connection: socket.socket) -> socket.socket:
    secured = anonymous().wrap_socket(connection)
    secured.sendall(bytes(TOKEN - 1))
    return secured


def half_of_a_greeting(connection: socket.socket) -> socket.socket:
    connection.sendall(b"\x16\x03\x01\x02\x00\x01")
    return connection


def nothing(connection: socket.socket) -> socket.socket:
    return connection


@pytest.mark.parametrize("way", [nothing, half_of_a_greeting, half_of_a_token])
def test_slow_callers_are_dropped(desk: Desk, way: Callable[[socket.socket], socket.socket]) -> None:
    with contextlib.closing(way(desk.connect())) as slow:
        desk.comes_in()
        desk.lose_patience()
        assert hung_up(slow)
    assert desk.arrived.empty()


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", bytes(100_000), bytes(range(256)) * 100, b"\x16\x03\x01\xff\xff" + bytes(70_000)],
)
def test_garbage_is_dropped_at_once(desk: Desk, garbage: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "PATIENCE", 10 * WITHIN)
    with desk.connect() as stranger:
        with contextlib.suppress(ConnectionError):
            stranger.sendall(garbage)
        assert hung_up(stranger)
    desk.comes_in()


def test_older_tls_is_refused(desk: Desk) -> None:
    context = anonymous()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with desk.connect() as old, pytest.raises(OSError):
        context.wrap_socket(old)


def test_one_address_cannot_take_all_places(desk: Desk) -> None:
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(desk.connect("127.0.0.2")) for _ in range(3 * MOST)]
        for refused in idle[MOST_OF_ONE:]:
            assert hung_up(refused)
        assert len(desk.reception._callers) == MOST_OF_ONE
        desk.comes_in()


def test_many_addresses_cannot_either(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reception, "PATIENCE", 10 * WITHIN)  # so that only the crowd can have made it shorter
    with contextlib.ExitStack() as stack:
        for number in range(2 * MOST):
            stack.enter_context(desk.connect(f"127.0.1.{number + 1}"))
        desk.comes_in()
        assert len(desk.reception._callers) <= MOST


def test_a_launcher_with_another_certificate_is_shown_nothing(desk: Desk) -> None:
    other = make().context
    seen: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    token = os.urandom(TOKEN)

    def pretend(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with other.wrap_socket(connection, server_side=True) as secured:
            seen.put(secured.recv(100))

    with socket.create_server((HERE, 0)) as listening:
        thread = threading.Thread(target=pretend, args=(listening,))
        thread.start()
        with pytest.raises(Unreached, match="somebody else answers there"):
            reach([listening.getsockname()], desk.known_by, token)
        thread.join()
    assert seen.get() == b""


def test_all_addresses_are_tried(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as stack:
        bound = stack.enter_context(socket.socket())
        bound.bind((HERE, 0))  # and listens not: nobody else does there either
        closed = bound.getsockname()
        silent = stack.enter_context(full())
        desk.addresses = [closed, silent.getsockname(), *desk.addresses]
        desk.comes_in()
        monkeypatch.setattr(calling, "CONNECTING", 0.5)
        with pytest.raises(Unreached) as caught:
            reach(desk.addresses[:2], desk.known_by, bytes(TOKEN))
        said = str(caught.value)
        assert f"{HERE} port {closed[1]}: Connection refused; " in said
        assert f"{HERE} port {silent.getsockname()[1]}: no answer within 0.5s" in said


@contextlib.contextmanager
def full() -> Iterator[socket.socket]:
    """Have a socket that listens and has no place left: like behind a firewall, nothing answers."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind((HERE, 0))
        listening.listen(0)
        while True:
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.3)
            try:
                waiting.connect(listening.getsockname())
            except TimeoutError:
                break
        yield listening


def test_a_call_that_is_closed_is_tried_again(desk: Desk) -> None:
    token = os.urandom(TOKEN)
    calls: list[Any] = []
    with socket.create_server((HERE, 0)) as door:
        door.settimeout(WITHIN)

        def turn_away_once() -> None:
            for _ in range(2):
                calls.append(door.accept()[0])
                if len(calls) == 1:
                    calls[0].close()
            with socket.create_connection(desk.addresses[0]) as inside:
                ways = [(calls[1], inside), (inside, calls[1])]
                threads = [threading.Thread(target=pass_on, args=way) for way in ways]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            calls[1].close()

        thread = threading.Thread(target=turn_away_once, daemon=True)
        thread.start()
        desk.expect(token)
        theirs = reach([door.getsockname()], desk.known_by, token)
        ours = desk.arrived.get(timeout=patience(WITHIN))
        ours.close()
        theirs.close()
        thread.join(patience(WITHIN))
    assert len(calls) == 2


def pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def test_afterwards_nobody_listens_and_who_is_in_stays() -> None:
    here = Reception()
    try:
        desk = Desk(here)
        token = os.urandom(TOKEN)
        desk.expect(token)
        theirs = desk.reach(token)
        ours = desk.arrived.get(timeout=patience(WITHIN))
        outside = desk.connect()
    finally:
        here.close()
    with pytest.raises(ConnectionRefusedError):
        desk.connect()
    assert hung_up(outside)
    outside.close()
    ours.write([b"still here"])
    assert theirs.read(100) == b"still here"
    ours.close()
    theirs.close()
    assert here.offer([HERE]) is None
    here.expect(bytes(TOKEN), desk.arrived.put)  # a node that comes late does no harm


def test_ports_are_those_that_slurm_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HERE, 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(reception, "port_range", lambda: range(port, port + 20))
        here = Reception()
        try:
            ((_, chosen),) = Desk(here).addresses
        finally:
            here.close()
    assert port < chosen < port + 20


def test_addresses_of_others_are_left_out() -> None:
    here = Reception()
    try:
        offer = here.offer(["192.0.2.1", HERE, HERE])
        assert offer is not None
        assert [host for host, _ in offer["addresses"]] == [HERE]
        assert here.offer(["192.0.2.1"]) is None
        assert "192.0.2.1" in here.problem
    finally:
        here.close()


def test_without_openssl_there_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    here = Reception()
    try:
        assert here.offer([HERE]) is None
        assert "there is no program 'openssl'" in here.problem
    finally:
        here.close()


def test_nothing_secret_is_written_down_for_the_certificate() -> None:
    assert make().fingerprint != make().fingerprint
    written = [word for word in COMMAND if word.startswith("/") and not word.startswith("/CN=")]
    assert written == ["/dev/stdin", "/dev/stdout"]
