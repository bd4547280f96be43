"""The connection between an agent and the store in its launcher, through the channel that they have."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from struct import Struct

from lattice.launching.channel import CHUNK, BrokenChannelError, Channel, Kind
from lattice.stores.served_line import Line

NUMBER = Struct("!I")
"""which connection: a new one is made when an old one is broken"""
PATIENCE = 10.0
"""seconds for an answer of the store: the launcher's interpreter may be busy"""


def pump(end: socket.socket, number: int, channel: Channel) -> None:
    """Send what is written into one end, until it is closed."""
    try:
        while data := end.recv(CHUNK):
            channel.send(Kind.STORE, NUMBER.pack(number) + data)
    except (OSError, BrokenChannelError):
        pass
    end.close()


class StoreTunnel:
    """The node's end."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._number = 0
        self._end: socket.socket | None = None

    def dial(self, secret: bytes) -> Line:
        """Connect to the store."""
        mine, theirs = socket.socketpair()
        mine.settimeout(PATIENCE)
        self._number += 1
        self._end = theirs
        threading.Thread(target=pump, args=(theirs, self._number, self._channel), name="store", daemon=True).start()
        # The first bytes of a connection come from the server: this makes it begin.
        self._channel.send(Kind.STORE, NUMBER.pack(self._number))
        return Line("the launcher", mine, secret, PATIENCE)

    def received(self, body: bytes) -> None:
        """Take bytes from the launcher."""
        (number,) = NUMBER.unpack_from(body)
        if number == self._number and self._end is not None:
            _give(self._end, body[NUMBER.size :])


class StoreEntrance:
    """The launcher's end, one for each node."""

    def __init__(self, channel: Channel, adopt: Callable[[socket.socket], None]) -> None:
        self._channel = channel
        self._adopt = adopt
        self._number = 0
        self._end: socket.socket | None = None

    def received(self, body: bytes) -> None:
        """Take bytes from the node, the first of a new connection too."""
        (number,) = NUMBER.unpack_from(body)
        if number > self._number:
            self.close()
            self._number = number
            self._end, theirs = socket.socketpair()
            threading.Thread(target=pump, args=(self._end, number, self._channel), name="store", daemon=True).start()
            self._adopt(theirs)
        if number == self._number and self._end is not None and len(body) > NUMBER.size:
            _give(self._end, body[NUMBER.size :])

    def close(self) -> None:
        """End the connection."""
        if self._end is not None:
            try:
                self._end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self._end = None


def _give(end: socket.socket, data: bytes) -> None:
    try:
        end.sendall(data)
    except OSError:
        pass  # closed on this side: the other will hear
