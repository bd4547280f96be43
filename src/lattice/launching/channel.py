"""One stream of bytes between the launcher and a node, and what is said over it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import Any

HEADER = Struct("!BI")
START = b"\nLATTICE-NODE-1\n"
"""the first bytes from a node: a login shell may have written something before"""
CHUNK = 256 << 10
"""bytes in one message at most, so that a large one does not hold up what is urgent"""


class Kind(IntEnum):
    """What a message is about; the first byte of it."""

    HELLO = 1
    """node: who it is, as JSON"""
    SETTINGS = 2
    """launcher: what to run, as JSON"""
    PAYLOAD = 3
    """launcher: bytes of the payload, in order"""
    BEGIN = 4
    """launcher: all is said"""
    STORE = 5
    """both: bytes of the connection to the store"""
    STOP = 6
    """launcher: end the workers of a run at once; JSON, whether the node shall leave the run as well"""
    LOG = 7
    """node: what a worker wrote: local rank, stream, bytes"""
    LEFT = 8
    """node: JSON: which worker ended how, and how many bytes of what it left follow"""
    REMAINS = 9
    """node: bytes of what that worker left"""
    FINISHED = 10
    """node: how the run ended, as JSON"""
    ALIVE = 11
    """both: nothing but that somebody is there"""


class BrokenChannelError(Exception):
    """The other side is gone."""


class Channel:
    """Sends from any thread; one thread receives."""

    def __init__(self, read: int, write: int) -> None:
        self._read = read
        self._write = write
        self._sending = threading.Lock()

    def send(self, kind: Kind, body: bytes | memoryview = b"") -> None:
        """
        Send a message; waits while the other side does not read.

        :raises BrokenChannelError: there is no other side any more
        """
        parts = [memoryview(HEADER.pack(kind, len(body))), memoryview(body).cast("B")]
        with self._sending:
            try:
                while parts:
                    sent = os.writev(self._write, parts)
                    while parts and sent >= len(parts[0]):
                        sent -= len(parts[0])
                        parts.pop(0)
                    if parts:
                        parts[0] = parts[0][sent:]
            except OSError as error:
                raise BrokenChannelError(str(error)) from None

    def tell(self, kind: Kind, **facts: Any) -> None:
        """Send a message of JSON."""
        self.send(kind, json.dumps(facts, default=str).encode())

    def send_all(self, kind: Kind, data: bytes | memoryview) -> None:
        """Send bytes in as many messages as they need."""
        view = memoryview(data).cast("B")
        for at in range(0, len(view), CHUNK):
            self.send(kind, view[at : at + CHUNK])

    def announce(self) -> None:
        """Say that messages begin here."""
        with self._sending:
            os.write(self._write, START)

    def find_start(self) -> bool:
        """Leave out whatever comes before the announcement; tell whether there was one."""
        seen = b""
        while not seen.endswith(START):
            byte = self._exactly(1)
            if byte is None:
                return False
            seen = (seen + byte)[-len(START) :]
        return True

    def receive(self) -> Iterator[tuple[Kind, bytes]]:
        """Give messages until the other side is gone, or says what can't be understood."""
        while (header := self._exactly(HEADER.size)) is not None:
            number, size = HEADER.unpack(header)
            body = self._exactly(size)
            if body is None:
                return
            yield Kind(number), body

    def _exactly(self, size: int) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            try:
                more = os.read(self._read, min(size - len(data), 1 << 20))
            except OSError:
                return None
            if not more:
                return None
            data += more
        return bytes(data)
