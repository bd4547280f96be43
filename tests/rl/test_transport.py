"""Only who has the job's key is heard, and nothing can be read on the way."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import zmq
from zmq.utils import z85

from lattice.errors import UsageError
from lattice.rl.keys import Keys, secret_of
from lattice.rl.transport import Caller, Listener, NoPort
from tests.waiting import eventually

KEYS = Keys.of("a secret of a job")
LARGE = bytes(100_000)


@pytest.fixture
def listener() -> Iterator[Listener]:
    with Listener(KEYS, "127.0.0.1") as made:
        yield made


def heard(listener: Listener, within: float = 20.0) -> list[bytes]:
    """Wait for a message."""
    found: list[Any] = []

    def come() -> bool:
        found.extend(listener.receive(0.01))
        return bool(found)

    eventually(come, within)
    return [bytes(frame) for frame in found[0][1]]


def test_a_worker_with_the_key_is_heard_and_answered(listener: Listener) -> None:
    caller = Caller(KEYS)
    with closing(caller):
        caller.call(f"127.0.0.1:{listener.port}")
        came: list[Any] = []

        def talk() -> bool:
            if not came:
                caller.send([b"hello"])
            came.extend(listener.receive(0.01))
            return bool(came)

        eventually(talk)
        listener.send(came[0][0], [b"welcome", b"x" * 200_000])
        answer = eventually(caller.receive)
        assert answer is not None
        assert [bytes(frame) for frame in answer] == [b"welcome", b"x" * 200_000]
        assert listener.refused == 0


def stranger(listener: Listener, **options: Any) -> bool:
    """Try to talk to the learner; tells whether it was heard."""
    context = zmq.Context()
    try:
        line = context.socket(zmq.DEALER)
        line.linger = 0
        line.handshake_ivl = 500
        for name, value in options.items():
            setattr(line, name, value)
        line.connect(f"tcp://127.0.0.1:{listener.port}")
        line.send(b"hello")
        refused = listener.refused
        for _ in range(60):
            if listener.receive(0.02):
                return True
            if listener.refused > refused:
                break
        return False
    finally:
        context.destroy(0)


def test_whoever_has_not_the_key_is_not_heard(listener: Listener) -> None:
    public, secret = zmq.curve_keypair()
    server = zmq.curve_public(z85.encode(KEYS.learner))
    assert not stranger(listener), "nothing at all"
    assert not stranger(listener, plain_username=b"a", plain_password=b"b")
    assert listener.refused == 0, "they do not even get to the door"
    assert not stranger(listener, curve_serverkey=server, curve_publickey=public, curve_secretkey=secret)
    assert listener.refused >= 1, "the learner's public key is not enough"
    other = Keys.of("a secret of another job")
    line = Caller(other)
    with closing(line):
        line.call(f"127.0.0.1:{listener.port}")
        for _ in range(20):
            assert not line.send([b"hello"]), "no line comes about"
            assert not listener.receive(0.02)
    worker = z85.encode(KEYS.worker)
    mine = zmq.curve_public(worker)
    assert stranger(listener, curve_serverkey=server, curve_publickey=mine, curve_secretkey=worker), "the test works"


def test_a_worker_does_not_talk_to_a_learner_without_the_key() -> None:
    with Listener(Keys.of("a secret of a thief"), "127.0.0.1") as thief:
        caller = Caller(KEYS)
        with closing(caller):
            caller.call(f"127.0.0.1:{thief.port}")
            for _ in range(20):
                assert not caller.send([b"hello"])
                assert not thief.receive(0.02)


def test_nothing_can_be_read_on_the_way(listener: Listener) -> None:
    """All that goes over the wire is looked at by somebody in the middle."""
    seen = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as middle, closing(Caller(KEYS)) as caller:
        middle.settimeout(20)
        caller.call(f"127.0.0.1:{middle.getsockname()[1]}")
        there, _ = middle.accept()
        with there, socket.create_connection(("127.0.0.1", listener.port)) as back:
            for one in (there, back):
                one.setblocking(False)
            came: list[Any] = []

            def carry() -> bool:
                for here, away in ((there, back), (back, there)):
                    try:
                        data = here.recv(65536)
                    except BlockingIOError:
                        continue
                    seen.extend(data)
                    away.sendall(data)
                if not came:
                    caller.send([b"what nobody may read"])
                came.extend(listener.receive(0.005))
                return bool(came)

            eventually(carry)
            assert bytes(came[0][1][0]) == b"what nobody may read"
    assert b"nobody" not in seen
    assert b"CURVE" in seen


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, pytest.raises(NoPort, match="cannot listen"):
        Listener(KEYS, "127.0.0.1", other.getsockname()[1])


def test_where_the_secret_comes_from(tmp_path: Any) -> None:
    file = tmp_path / "key"
    file.write_text("from a file, and long\n")
    environ = {"LATTICE_JOB_KEY": "that of the job itself", "LATTICE_RL_KEY_FILE": str(file)}
    assert secret_of("given by the program", environ) == "given by the program"
    assert secret_of(None, {**environ, "LATTICE_RL_KEY": "from a variable, long"}) == "from a variable, long"
    assert secret_of(None, environ) == "from a file, and long"
    assert secret_of(None, {"LATTICE_JOB_KEY": "that of the job itself"}) == "that of the job itself"
    with pytest.raises(UsageError, match="no common key"):
        secret_of(None, {})
    with pytest.raises(UsageError, match="3 characters"):
        secret_of("abc", {})
    with pytest.raises(UsageError, match="LATTICE_RL_KEY_FILE"):
        secret_of(None, {"LATTICE_RL_KEY_FILE": str(tmp_path / "none")})


def test_keys_tell_nothing() -> None:
    assert "Keys object" in repr(KEYS)
    assert KEYS.learner != KEYS.worker
    assert json.dumps(repr(KEYS)).find(KEYS.worker.hex()) < 0


def test_what_waits_for_a_learner_that_does_not_read_is_lost_by_nobody(listener: Listener) -> None:
    caller, many = Caller(KEYS), 500  # more than fits into the queues of ZeroMQ and of the system
    with closing(caller):
        caller.call(f"127.0.0.1:{listener.port}")

        def let_in() -> bool:
            listener.wait(0.01)
            return caller.send([b"0"])

        eventually(let_in)
        for number in range(1, many):
            eventually(lambda number=number: caller.send([b"%d" % number, LARGE]))  # type: ignore[misc]
        came: list[bytes] = []

        def all_of_them() -> bool:
            came.extend(bytes(frames[0]) for _, frames in listener.receive(0.01))
            return len(came) >= many

        # By now it has read nothing: the line is not cut, and the worker never had to wait.
        eventually(all_of_them)
    assert came == [b"%d" % number for number in range(many)]


def test_a_word_to_somebody_who_is_gone_is_known_to_be_lost(listener: Listener) -> None:
    assert not listener.send(b"nobody", [b"welcome"])
