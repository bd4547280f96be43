"""The agent, as the zygote and its newborn workers talk to it: messages framed as in guard.py, over a socket."""

# ruff: noqa: I001
# Runs on Python 3.8 and later, see sitecustomize.py.

from __future__ import annotations

import marshal
import os

import _socket


class Control:
    """One end of such a socket."""

    def __init__(self, descriptor: int) -> None:
        self._socket = _socket.socket(fileno=descriptor)

    def send(self, *message: object) -> None:
        """Send one message."""
        # An old version, so that an agent under another Python can read it.
        body = marshal.dumps(message, 2)  # type: ignore[arg-type]
        self._socket.sendall(len(body).to_bytes(8, "little") + body)

    def receive(self) -> tuple[tuple, list[int]]:  # type: ignore[type-arg]
        """Receive one message and the descriptors that came with it; leaves with the agent."""
        header, ancillary, _, _ = self._socket.recvmsg(8, 256)
        descriptors = []
        for level, kind, data in ancillary:
            if (level, kind) == (_socket.SOL_SOCKET, _socket.SCM_RIGHTS):
                descriptors += memoryview(data[: len(data) - len(data) % 4]).cast("i").tolist()
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        length = int.from_bytes(header + self._exactly(8 - len(header)), "little")
        return marshal.loads(self._exactly(length)), descriptors

    def close(self) -> None:
        """Leave the socket to the zygote."""
        self._socket.close()

    def _exactly(self, length: int) -> bytes:
        received = b""
        while len(received) < length:
            part = self._socket.recv(length - len(received))
            if not part:
                os._exit(0)
            received += part
        return received
