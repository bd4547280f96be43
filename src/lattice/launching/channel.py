"""One stream of bytes between the launcher and a node, and what is said over it."""

from __future__ import annotations

import json
import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from functools import partial
from struct import Struct
from typing import Any, Protocol

HEADER = Struct("!BI")
START = b"\nLATTICE-NODE-1\n"
"""the first bytes from a node: a login shell may have written something before"""
CHUNK = 256 << 10
"""bytes in one message at most, so that a large one does not hold up what is urgent"""
STREAMS = ("stdout", "stderr", "records", "events")
"""what may be written: by a worker, and, as lines of JSON, by its ``logging`` and by the agent of how it stands"""
LOG = Struct("!iB")
"""what a message of a log begins with: local rank, stream"""
AGENT = -1
"""the local rank of the agent itself"""
TAKEN = Struct("!I")
"""bytes"""


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
    """node: what a worker, or the agent itself, wrote: local rank, stream, bytes"""
    LEFT = 8
    """node: JSON: which worker ended how, and how many bytes of what it left follow"""
    REMAINS = 9
    """node: bytes of what that worker left"""
    FINISHED = 10
    """node: how the run ended, as JSON"""
    ALIVE = 11
    """both: nothing but that somebody is there"""
    MANIFEST = 12
    """launcher: bytes of a project's manifest, in order; an empty one ends it, and asks what is missing"""
    WANTED = 13
    """node: which contents it lacks, as JSON"""
    CONTENT = 14
    """launcher: a digest, and bytes of that content, in order"""
    SYNCED = 15
    """node: the project is there, or why not, as JSON"""
    CALL = 20
    """both: how the node shall move to a connection of its own, and that one side has; JSON"""
    TAKEN = 21
    """launcher: how many bytes of workers' logs it has done with"""


class BrokenChannelError(Exception):
    """The other side is gone."""


class Stream(Protocol):
    """Bytes from the other side, and bytes to it."""

    def read(self, size: int) -> bytes:
        """Wait for bytes, and give so many at most; none at the end."""

    def write(self, parts: Sequence[bytes | memoryview]) -> int:
        """Write some of it at least, and tell how many bytes."""

    def writable(self) -> bool:
        """Tell whether something can be written without a wait."""

    def end(self) -> None:
        """Have both sides notice the end."""


class Pipes:
    """A stream of two descriptors, which belong to somebody else."""

    def __init__(self, read: int, write: int) -> None:
        self.read: Callable[[int], bytes] = partial(os.read, read)
        self.write: Callable[[Sequence[bytes | memoryview]], int] = partial(os.writev, write)
        self._write = write

    def writable(self) -> bool:
        """Tell whether something can be written without a wait."""
        return is_writable(self._write)

    def end(self) -> None:
        """Leave that to whoever closes the descriptors."""


def is_writable(descriptor: int) -> bool:
    """Tell whether something can be written to a descriptor without a wait, or never any more."""
    looking = select.poll()
    looking.register(descriptor, select.POLLOUT)
    return bool(looking.poll(0))


class Channel:
    """Sends from any thread; one thread receives."""

    def __init__(self, read: int, write: int) -> None:
        """
        Begin with two descriptors.

        :param read: where the other side's messages come from
        :param write: where ours go
        """
        self._from: Stream = Pipes(read, write)
        self._to: Stream = self._from
        self._sending = threading.Lock()
        self._shut = False

    def send(self, kind: Kind, body: bytes | memoryview = b"") -> None:
        """
        Send a message; waits while the other side does not read.

        :raises BrokenChannelError: there is no other side any more
        """
        with self._sending:
            self._send(kind, body)

    def shut(self) -> None:
        """Send no more: the descriptor will be closed, and its number may then be somebody else's."""
        self._shut = True

    def beat(self) -> None:
        """
        Give a sign of life, and never wait: who is sending just now gives one too, and where nothing can be sent
        there is nobody who would hear it.
        """
        if not self._sending.acquire(blocking=False):
            return
        try:
            if not self._shut and self._to.writable():
                self._to.write([HEADER.pack(Kind.ALIVE, 0)])
        except OSError:
            pass  # whoever listens hears of it
        finally:
            self._sending.release()

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
            self._to.write([START])

    def send_through(self, stream: Stream) -> None:
        """Say here that what follows comes through another stream, and send it through that from now on."""
        with self._sending:
            self._send(Kind.CALL, json.dumps({"moved": True}).encode())
            self._to = stream

    def receive_from(self, stream: Stream) -> None:
        """
        Receive the next message from another stream; only for the thread that receives.

        The two are one from then on: with the old one, which is that of the process that was started, the new one ends.
        """
        old, self._from = self._from, stream
        threading.Thread(target=_end_together, args=(old, stream), name="old stream", daemon=True).start()

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

    def _send(self, kind: Kind, body: bytes | memoryview) -> None:
        parts = [memoryview(HEADER.pack(kind, len(body))), memoryview(body).cast("B")]
        try:
            while parts:
                if self._shut:
                    raise BrokenChannelError("it is shut")
                sent = self._to.write(parts)
                while parts and sent >= len(parts[0]):
                    sent -= len(parts[0])
                    parts.pop(0)
                if parts:
                    parts[0] = parts[0][sent:]
        except OSError as error:
            raise BrokenChannelError(str(error)) from None

    def _exactly(self, size: int) -> bytes | None:
        parts, missing = [], size
        while missing:
            try:
                more = self._from.read(min(missing, 1 << 20))
            except OSError:
                return None
            if not more:
                return None
            parts.append(more)
            missing -= len(more)
        return b"".join(parts)


def _end_together(old: Stream, new: Stream) -> None:
    try:
        while old.read(HEADER.size):
            pass
    except OSError:
        pass
    new.end()
