"""What a worker and the keeper of its node say to each other: one JSON object in a packet, perhaps with memory."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

LARGEST = 1 << 16
"""bytes of a message"""


def send(line: socket.socket, message: dict[str, Any], descriptor: int | None = None) -> None:
    """Send a message, and memory by its descriptor."""
    socket.send_fds(line, [json.dumps(message).encode()], [] if descriptor is None else [descriptor])


def receive(line: socket.socket) -> tuple[dict[str, Any] | None, int | None]:
    """
    Receive a message.

    :return: None if the other side has gone; the descriptor that came along is the caller's to close
    :raises BlockingIOError: there is none, and the socket does not wait
    """
    try:
        data, descriptors, _, _ = _packet(line)
    except (ConnectionError, TimeoutError):
        return None, None
    descriptor = descriptors[0] if descriptors else None
    if not data:
        return None, descriptor
    message = json.loads(data)
    assert isinstance(message, dict)
    return message, descriptor


def _packet(line: socket.socket) -> tuple[bytes, list[int], int, Any]:
    try:
        return socket.recv_fds(line, LARGEST, 1, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        # Said once if the other side went with answers unread, and said before what it had sent: that is still here.
        return socket.recv_fds(line, LARGEST, 1, socket.MSG_CMSG_CLOEXEC)


def listener(name: str) -> socket.socket:
    """Listen under a name that needs no file."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    line.bind(f"\0{name}")
    line.listen(128)
    return line


def connect(name: str, timeout: float) -> socket.socket:
    """
    Reach whoever listens under a name.

    :raises OSError: nobody does
    """
    line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    try:
        line.settimeout(timeout)
        line.connect(f"\0{name}")
    except BaseException:
        line.close()
        raise
    return line


def is_mine(line: socket.socket) -> bool:
    """Tell whether the other side is run by the same user: the name of the socket is no secret."""
    credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], "little") == os.getuid()
