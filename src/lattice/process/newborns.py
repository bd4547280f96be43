"""A line to a process of ours that is read without waiting, and a worker at its other end that waits for its name."""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Mapping
from marshal import loads

from lattice.process import guard as wire
from lattice.process.spawning import Guard
from lattice.process.workers import Worker

SEND_TIMEOUT = 10.0


class Line:
    """Messages framed as the guard's, from somebody who may die or fall silent in the midst of one."""

    def __init__(self, ours: socket.socket) -> None:
        self._socket = ours
        self._socket.settimeout(SEND_TIMEOUT)
        self._buffer = b""
        self.ended = False
        """whether nobody is there any more"""

    def fileno(self) -> int:
        """Give the socket, for selectors; -1 when closed."""
        return self._socket.fileno()

    def send(self, message: tuple[object, ...], descriptors: tuple[int, ...] = ()) -> None:
        """Send one message; if nobody takes it, :attr:`ended` tells."""
        try:
            wire.send(self._socket, message, descriptors)
        except OSError:
            self.ended = True

    def take(self) -> list[tuple[object, ...]]:
        """Give the messages that have come completely."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not self.ended and poll.poll(0):
            try:
                part = self._socket.recv(1 << 16)
            except OSError:
                part = b""
            self._buffer += part
            self.ended = not part
        messages = []
        size = wire.HEADER.size
        while len(self._buffer) >= size:
            (length,) = wire.HEADER.unpack_from(self._buffer)
            if len(self._buffer) < size + length:
                break
            messages.append(loads(self._buffer[size : size + length]))
            self._buffer = self._buffer[size + length :]
        return messages

    def close(self) -> None:
        """Hang up."""
        self._socket.close()


class Newborn:
    """A worker that was forked ahead."""

    def __init__(self, line: Line) -> None:
        self.line = line
        self.worker: Worker | None = None
        """the worker, from when it is our child"""

    def hear(self, guard: Guard) -> None:
        """
        Take what it has said.

        :param guard: looks after it from when it is our child
        """
        for message in self.line.take():
            match message:
                case ("born", int(pid)):
                    # A sweep that did not know of it yet may have ended it, and its number may be somebody else's.
                    process = wire.read_process(pid)
                    if process is not None and process.parent == os.getpid():
                        self.worker = guard.adopt(pid)
                    else:
                        self.line.ended = True

    def wake(
        self, variables: Mapping[bytes, bytes], cwd: str, stdin: int | None, stdout: int, stderr: int, within: float
    ) -> tuple[object, ...]:
        """
        Tell it who it is.

        :param variables: to be added to its environment
        :param cwd: its working directory
        :param stdin: descriptor for its standard input, None for /dev/null
        :param stdout: descriptor for its standard output
        :param stderr: descriptor for its standard error
        :param within: seconds to wait for its answer
        :return: ``("alive",)``, or what hinders it, or nothing if it died or hangs
        """
        descriptors = (stdout, stderr) if stdin is None else (stdin, stdout, stderr)
        self.line.send(("wake", dict(variables), os.fsencode(cwd), stdin is not None), descriptors)
        deadline = time.monotonic() + within
        poll = select.poll()
        poll.register(self.line, select.POLLIN)
        while not self.line.ended and (left := deadline - time.monotonic()) > 0:
            poll.poll(left * 1000)
            for message in self.line.take():
                return message
        return ()
