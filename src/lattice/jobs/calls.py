"""Asks the program of :mod:`lattice.jobs.node` on a host, here or over SSH."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from lattice.errors import LatticeError
from lattice.jobs.archive import Archive
from lattice.jobs.node import START, logs, perform
from lattice.launching.hosts import HostSpec
from lattice.launching.transports import NodeProcess, Transport

CHUNK = 1 << 20


class HostFailed(LatticeError):
    """A host could not be asked, or could not do what it was asked for."""


class Conversation:
    """One request and its answer."""

    def __init__(
        self, transport: Transport, host: HostSpec, request: Mapping[str, Any], body: Archive | None = None
    ) -> None:
        self._host = host
        self._process: NodeProcess = transport.start(host)
        self._rest = b""
        try:
            size = 0 if body is None else body.size
            self._write(json.dumps({**request, "size": size}).encode() + b"\n")
            if body is not None:
                all(map(self._write, body.chunks()))
            self._find_start()
        except BaseException:
            self.close()
            raise

    def line(self) -> dict[str, Any]:
        """
        Give the next line of the answer.

        :raises HostFailed: it is an error, or the program ended
        """
        while b"\n" not in self._rest:
            self._more()
        line, _, self._rest = self._rest.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        if "error" in said:
            failed = HostFailed(f"{self._host.given}: {said['error']}")
            failed.exit_code = said.get("code", 1)
            raise failed
        return said

    def chunks(self) -> Iterator[bytes]:
        """Give the bytes of an answer that has some."""
        while size := self.line()["size"]:
            while len(self._rest) < size:
                self._more()
            chunk, self._rest = self._rest[:size], self._rest[size:]
            yield chunk

    def close(self) -> None:
        """End it; what it started there goes on."""
        self._process.kill()

    def _write(self, data: bytes) -> bool:
        """Send bytes; false if nobody takes them."""
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._process.stdin, left) :]
        except BrokenPipeError:
            return False  # it has ended: reading tells why
        return True

    def _find_start(self) -> None:
        while START not in self._rest:
            self._rest = self._rest[-len(START) :]
            self._more()
        self._rest = self._rest.partition(START)[2]

    def _more(self) -> None:
        data = os.read(self._process.stdout, CHUNK)
        if not data:
            raise HostFailed(self._process.diagnose())
        self._rest += data


class Caller(Protocol):
    """How the hosts of a job are asked."""

    def ask(self, host: HostSpec, request: Mapping[str, Any], body: Archive | None = None) -> dict[str, Any]:
        """
        Ask a host one thing.

        :param host: whom
        :param request: what, see :mod:`lattice.jobs.node`
        :param body: what goes with it
        :raises LatticeError: it could not be asked, or could not do it
        """

    def read(self, host: HostSpec, request: Mapping[str, Any]) -> Iterator[bytes]:
        """Ask for logs, and give them as they come."""

    def stop(self) -> None:
        """End all reading."""


class Here:
    """This machine: what the program of a node would do is done in this process."""

    def __init__(self) -> None:
        self._stopped = False

    def ask(self, host: HostSpec, request: Mapping[str, Any], body: Archive | None = None) -> dict[str, Any]:
        """Do one thing."""
        with contextlib.nullcontext() if body is None else body.open() as file:
            return perform(dict(request), file)

    def read(self, host: HostSpec, request: Mapping[str, Any]) -> Iterator[bytes]:
        """Give logs as they come."""
        return logs(dict(request), lambda: self._stopped)

    def stop(self) -> None:
        """End all reading."""
        self._stopped = True


class There:
    """Other machines."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._reading: list[Conversation] = []

    def ask(self, host: HostSpec, request: Mapping[str, Any], body: Archive | None = None) -> dict[str, Any]:
        """Ask a host one thing."""
        conversation = Conversation(self._transport, host, request, body)
        try:
            return conversation.line()
        finally:
            conversation.close()

    def read(self, host: HostSpec, request: Mapping[str, Any]) -> Iterator[bytes]:
        """Ask for logs, and give them as they come."""
        conversation = Conversation(self._transport, host, request)
        self._reading.append(conversation)
        return conversation.chunks()

    def stop(self) -> None:
        """End all reading."""
        for conversation in self._reading:
            conversation.close()


def together(actions: list[Any]) -> list[Any]:
    """
    Do several things at once.

    :param actions: functions without arguments
    :return: for each what it returned, or the error that it raised
    """

    def attempt(action: Any) -> Any:
        try:
            return action()
        except LatticeError as error:
            return error

    if len(actions) < 2:
        return [attempt(action) for action in actions]
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    with ThreadPoolExecutor(min(len(actions), 32)) as pool:
        return list(pool.map(attempt, actions))
