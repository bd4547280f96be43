"""A TLS connection as a stream that one thread reads while another writes."""

from __future__ import annotations

import select
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

RECORD = 16 << 10
"""bytes that TLS gives out at a time, at most"""


class Secured:
    """
    Takes an established connection over.

    OpenSSL lets no two threads into one connection at the same time, and one that waits inside keeps the other out. So
    the connection never waits by itself: threads take turns in it, and wait outside.
    """

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self.read_timeout: float | None = None
        """seconds that nothing may come; None for no limit"""
        self.write_timeout: float | None = None
        """seconds that nothing may be taken; None for no limit"""
        self._connection = connection
        self._turn = threading.Lock()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read(self, size: int) -> bytes:
        """
        Wait for bytes, and give some.

        :param size: as many at most
        :return: nothing if the other side has ended
        :raises TimeoutError: nothing came in time
        """
        return self._patiently(self._connection.recv, min(size, RECORD), self.read_timeout)

    def write(self, parts: Sequence[bytes | memoryview]) -> int:
        """
        Write all of it; one thread at a time.

        :return: how many bytes that was
        :raises TimeoutError: the other side took nothing in time
        """
        data = memoryview(b"".join(parts))
        at = 0
        while at < len(data):
            # What could not be written must be offered again exactly as it was: OpenSSL insists.
            at += self._patiently(self._connection.send, data[at:], self.write_timeout)
        return at

    def end(self) -> None:
        """Have both sides notice the end, whoever waits for what."""
        try:
            # Not the method of the connection: that takes TLS off, and others may be about to read or write.
            socket.socket.shutdown(self._connection, socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended

    def close(self) -> None:
        """Give the connection back, once nobody waits for it."""
        self.end()
        with self._turn:
            self._connection.close()

    def _patiently(self, action: Callable[[T], R], argument: T, timeout: float | None) -> R:
        while True:
            with self._turn:
                try:
                    return action(argument)
                except ssl.SSLWantReadError:
                    event = select.POLLIN
                except ssl.SSLWantWriteError:
                    event = select.POLLOUT
            waiting = select.poll()
            try:
                waiting.register(self._connection, event)
            except ValueError:
                raise ConnectionError("it was closed") from None
            if not waiting.poll(None if timeout is None else timeout * 1000):
                raise TimeoutError(f"timed out, nothing happened within {timeout:g}s")
