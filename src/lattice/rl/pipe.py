"""Messages of :mod:`lattice.rl.wire` over a socket between two processes of one machine."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Sequence

from lattice.rl.wire import BadMessage, Frame, Message, decode, encode

HEAD = struct.Struct("<I")
LENGTH = struct.Struct("<Q")
PIECE = 1 << 20
MOST_FRAMES = 10_001


def packed(message: Message) -> bytes:
    """Write a message with the lengths of its frames before it."""
    frames = encode(message)
    head = HEAD.pack(len(frames)) + b"".join(LENGTH.pack(len(frame)) for frame in frames)
    return b"".join([head, *frames])


def send(line: socket.socket, message: Message) -> None:
    """Send a message, however long that takes; as long as the socket's own time-out allows."""
    line.sendall(packed(message))


class Inflow:
    """What has come of messages so far: whoever sends them may stop in the midst of one, and is not waited for."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """
        Take bytes, and give the messages that are complete.

        :raises BadMessage: these are none
        """
        self._held += data
        while (frames := self._take()) is not None:
            yield decode(frames)

    def _take(self) -> Sequence[Frame] | None:
        held = self._held
        if len(held) < HEAD.size:
            return None
        (count,) = HEAD.unpack_from(held)
        if not 1 <= count <= MOST_FRAMES:
            raise BadMessage(f"{count} frames")
        at = HEAD.size + count * LENGTH.size
        if len(held) < at:
            return None
        lengths = [LENGTH.unpack_from(held, HEAD.size + i * LENGTH.size)[0] for i in range(count)]
        if len(held) < at + sum(lengths):
            return None
        frames = []
        for length in lengths:
            frames.append(bytes(held[at : at + length]))
            at += length
        del held[:at]
        return frames


def receive(line: socket.socket, inflow: Inflow) -> Message | None:
    """
    Wait for one message.

    :return: None if the other side has gone
    """
    while True:
        for message in inflow.feed(b""):
            return message
        data = line.recv(PIECE)
        if not data:
            return None
        for message in inflow.feed(data):
            return message
