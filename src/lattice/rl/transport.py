"""
Learner and workers over ZeroMQ, encrypted and authenticated by CURVE on both sides; the only file that knows it.

The learner listens, workers call. Messages may be lost when either side goes; that nothing is missing afterwards is the
business of :mod:`lattice.rl.outbox` and :mod:`lattice.rl.intake`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from lattice.errors import LatticeError
from lattice.rl.keys import Keys
from lattice.rl.wire import Frame

try:
    import zmq
    from zmq.utils import z85
except ImportError as error:  # pragma: no cover - depends on what is installed
    raise LatticeError("lattice.rl needs pyzmq: pip install 'lattice-addons-pytorch[rl]'") from error

LARGEST = 1 << 30
"""bytes of one frame, at most"""
QUEUE = 64
"""messages to one peer that ZeroMQ itself holds; what is beyond waits with the sender"""
ZAP = "inproc://zeromq.zap.01"
DOMAIN = b"lattice.rl"
OK, REFUSED = b"200", b"400"


class NoPort(LatticeError):
    """The learner cannot listen where it should."""


class Listener:
    """The learner's side."""

    def __init__(self, keys: Keys, host: str = "*", port: int = 0, threads: int = 1) -> None:
        """
        Listen.

        :param keys: of the job
        :param host: address to listen on, ``*`` for all
        :param port: 0 for any that is free
        :param threads: in which ZeroMQ decrypts
        :raises NoPort: the port is taken
        """
        self._context = zmq.Context(threads)
        self._allowed = _public(keys.worker)
        self.refused = 0
        """connections of those who have not the key of a worker"""
        # Whoever answers must be there before the first connection: without it ZeroMQ would let in any key.
        self._doorman = self._context.socket(zmq.REP)
        self._doorman.linger = 0
        self._doorman.bind(ZAP)
        self._socket = self._context.socket(zmq.ROUTER)
        _limit(self._socket)
        self._socket.router_mandatory = True  # else what is for somebody who is gone is dropped without a word
        self._socket.zap_domain = DOMAIN
        self._socket.curve_server = True
        self._socket.curve_secretkey = z85.encode(keys.learner)
        self._socket.curve_publickey = _public(keys.learner)
        try:
            self._socket.bind(f"tcp://{host}:{port or '*'}")
        except zmq.ZMQError as error:
            self.close()
            raise NoPort(
                f"the learner cannot listen on {host} port {port}: {error.strerror}. Give another port=, or end who "
                "has it."
            ) from None
        self.port = int(self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._doorman, zmq.POLLIN)

    def receive(self, timeout: float, most: int = 64, largest: int = LARGEST) -> list[tuple[bytes, list[Frame]]]:
        """
        Take what has come.

        :param timeout: seconds to wait if there is nothing
        :param most: messages to take at most; 0 only lets people in
        :param largest: bytes after which no further message is taken
        :return: who sent it, and its frames
        """
        found: list[tuple[bytes, list[Frame]]] = []
        ready = dict(self._poller.poll(int(timeout * 1000)))
        while self._doorman in ready and self._answer_door():
            pass
        taken = 0
        while len(found) < most and taken < largest:
            try:
                sender, *frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            found.append((sender.bytes, [frame.buffer for frame in frames]))
            taken += sum(len(frame.buffer) for frame in frames)
        return found

    def wait(self, timeout: float) -> None:
        """Let people in for a while, and take nothing: what they send waits where it is."""
        if self._doorman.poll(int(timeout * 1000)):
            while self._answer_door():
                pass

    def send(self, peer: bytes, frames: Sequence[Frame]) -> bool:
        """
        Send a message without waiting.

        :return: false if the peer is gone, or does not read
        """
        return _send(self._socket, [peer, *frames])

    def close(self, linger: float = 0.0) -> None:
        """
        Listen no more.

        :param linger: seconds in which what was sent may still go out
        """
        self._context.destroy(int(linger * 1000))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer_door(self) -> bool:
        """Let one in, or not, as ZeroMQ's protocol for this (ZAP 1.0) asks; false if nobody is there."""
        try:
            request = self._doorman.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        number = request[1] if len(request) > 1 else b""
        let_in = (
            len(request) == 7
            and request[0] == b"1.0"
            and request[2] == DOMAIN
            and request[5] == b"CURVE"
            and z85.encode(request[6]) == self._allowed
        )
        self.refused += not let_in
        code, text = (OK, b"") if let_in else (REFUSED, b"this is not the key of a worker of this job")
        self._doorman.send_multipart([b"1.0", number, code, text, b"worker" if let_in else b"", b""])
        return True


class Caller:
    """A worker's side: one learner, of which it may be told anew."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] | None = None
        self.address = ""
        """``host:port`` of the learner; empty if there is none"""

    def call(self, address: str) -> None:
        """
        Connect; goes on trying until there is somebody, and again when they have gone.

        :param address: ``host:port``; empty to connect to nobody
        """
        if self._socket is not None:
            self._socket.close(0)
            self._socket = None
        self.address = address
        if not address:
            return
        self._socket = self._context.socket(zmq.DEALER)
        _limit(self._socket)
        self._socket.curve_serverkey = _public(self._keys.learner)
        self._socket.curve_secretkey = z85.encode(self._keys.worker)
        self._socket.curve_publickey = _public(self._keys.worker)
        self._socket.reconnect_ivl = 100
        self._socket.reconnect_ivl_max = 1000
        self._socket.immediate = True  # what cannot be sent waits here, in order, and not for somebody who is gone
        self._socket.connect(f"tcp://{address}")

    def wait(self, descriptor: int, timeout: float) -> None:
        """
        Wait until there may be something to receive.

        :param descriptor: or until this can be read; -1 for none
        :param timeout: seconds, at most
        """
        poller = zmq.Poller()
        if self._socket is not None:
            poller.register(self._socket, zmq.POLLIN)
        if descriptor >= 0:
            poller.register(descriptor, zmq.POLLIN)
        if poller.sockets:
            poller.poll(int(timeout * 1000))
        else:
            time.sleep(timeout)

    def receive(self) -> list[Frame] | None:
        """Take a message, if one has come."""
        if self._socket is None:
            return None
        try:
            return [frame.buffer for frame in self._socket.recv_multipart(zmq.NOBLOCK, copy=False)]
        except zmq.Again:
            return None

    def send(self, frames: Sequence[Frame]) -> bool:
        """
        Send a message without waiting.

        :return: false if there is nobody, or no room for it
        """
        return self._socket is not None and _send(self._socket, frames)

    def close(self, linger: float = 0.0) -> None:
        """Hang up."""
        self._context.destroy(int(linger * 1000))
        self._socket = None


def _send(socket: zmq.Socket[bytes], frames: Sequence[Frame]) -> bool:
    try:
        # Copied: it costs little beside the encryption, and to do without takes a thread, which no fork should meet.
        socket.send_multipart(frames, zmq.NOBLOCK)
    except zmq.Again:
        return False
    except zmq.ZMQError as error:
        if error.errno == zmq.EHOSTUNREACH:
            return False
        raise
    return True


def _limit(socket: zmq.Socket[bytes]) -> None:
    socket.linger = 0
    socket.maxmsgsize = LARGEST
    socket.sndhwm = QUEUE
    # No bound for what comes in: ZeroMQ would stop to read the line, miss the peer's signs of life and cut it with all
    # that is on it, or fail an assertion of its own. What bounds it is the credit of the workers.
    socket.rcvhwm = 0
    socket.ipv6 = os.path.exists("/proc/net/if_inet6")  # noqa: PTH110 - no path of ours
    # A peer whose machine is gone says nothing; without these it would be waited for.
    socket.heartbeat_ivl = 5_000
    socket.heartbeat_timeout = 20_000
    socket.handshake_ivl = 10_000


def _public(secret: bytes) -> bytes:
    return zmq.curve_public(z85.encode(secret))
