"""Where nodes call back over TLS that were started through a stream which is slow and can be read by others."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from typing import Any

from lattice.launching.certificate import Certificate, NoCertificate, make
from lattice.launching.secured import SecuredStream
from lattice.launching.slurm import port_range

TOKEN = 32
"""bytes that a caller sends first; their SHA-256 came from a node before, through the stream it was started with"""
ACCEPTED = b"+"
"""the answer to the right ones; to others there is none"""
PATIENCE = 10.0
"""seconds that a caller has to prove itself"""
HURRY = 1.0
"""the same while there are as many as there may be"""
MOST = 64
"""callers that have not proved themselves; others wait at the door"""
MOST_OF_ONE = 8
"""the same from one address; others are sent away"""
BACKLOG = 1024
TRIES = 64
"""ports of a range that are tried"""

Arrived = Callable[[SecuredStream], None]


@dataclass(eq=False, slots=True)
class _Caller:
    connection: ssl.SSLSocket
    address: str
    since: float
    met: bool = False
    token: bytearray = field(default_factory=bytearray)


class Reception:
    """
    Listens while nodes are being started.

    Of those who have not proved themselves no more is read than a TLS handshake and a token. The token is the node's
    own: what travels where others could read it is its digest, and the fingerprint of our certificate.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._certificate: Certificate | None = None
        self._ports: range | None = None
        self.problem = ""
        """why nobody can call back here"""
        self._expected: dict[bytes, Arrived] = {}
        self._listening: dict[str, socket.socket] = {}
        self._callers: list[_Caller] = []
        self._selector = DefaultSelector()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._bell, EVENT_READ)
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="reception", daemon=True)
        # Other programs are asked: in the time that SLURM takes to start a step.
        self._preparing = threading.Thread(target=self._prepare, name="reception", daemon=True)
        self._preparing.start()

    def offer(self, addresses: Iterable[str]) -> dict[str, Any] | None:
        """
        Listen on addresses of ours, and give what a node must know to call there.

        :param addresses: where it might reach us; what is no address of this machine is left out
        :return: None if that cannot be; why is in :attr:`problem`
        """
        self._preparing.join()
        if self._certificate is None:
            return None
        wanted = list(dict.fromkeys(addresses))
        with self._lock:
            if self._closing:
                return None
            for address in wanted:
                if address not in self._listening and (made := _listen(address, self._ports)):
                    self._listening[address] = made
            if self._listening and self._thread.ident is None:
                self._thread.start()
            offered = [[one, self._listening[one].getsockname()[1]] for one in wanted if one in self._listening]
        if not offered:
            self.problem = f"it cannot listen on {' or '.join(wanted) or 'any address that SLURM tells'}"
            return None
        self._ring()
        return {"addresses": offered, "fingerprint": self._certificate.fingerprint.hex()}

    def expect(self, commitment: bytes, arrived: Arrived) -> None:
        """
        Let in whoever knows a token.

        :param commitment: SHA-256 of the token
        :param arrived: is given the connection, in a thread of ours
        """
        self._expected[commitment] = arrived
        self._ring()

    def close(self) -> None:
        """Let nobody in from now on; who came in stays."""
        self._preparing.join()
        with self._lock:
            self._closing = True
            os.eventfd_write(self._bell, 1)
        if self._thread.ident is not None:
            self._thread.join()
        for caller in tuple(self._callers):
            self._drop(caller)
        for listening in self._listening.values():
            listening.close()
        self._selector.close()
        os.close(self._bell)

    def _ring(self) -> None:
        with self._lock:
            if not self._closing:  # the descriptor may be somebody else's then
                os.eventfd_write(self._bell, 1)

    def _prepare(self) -> None:
        try:
            self._ports = port_range()
            self._certificate = make()
        except (NoCertificate, OSError) as error:
            self.problem = str(error)

    def _serve(self) -> None:
        while not self._closing:
            self._mind_the_doors()
            for key, _ in self._selector.select(self._rest()):
                if isinstance(key.data, _Caller):
                    self._hear(key.data)
                elif isinstance(key.fileobj, socket.socket):
                    self._answer(key.fileobj)
                else:
                    os.eventfd_read(self._bell)
            for caller in tuple(self._callers):
                if len(caller.token) == TOKEN:
                    self._check(caller)
                elif time.monotonic() >= self._deadline(caller):
                    self._drop(caller)

    def _mind_the_doors(self) -> None:
        room = len(self._callers) < MOST
        for listening in tuple(self._listening.values()):
            minded = listening.fileno() in self._selector.get_map()
            if room and not minded:
                self._selector.register(listening, EVENT_READ)
            elif minded and not room:
                self._selector.unregister(listening)

    def _deadline(self, caller: _Caller) -> float:
        return caller.since + (PATIENCE if len(self._callers) < MOST else HURRY)

    def _rest(self) -> float | None:
        if not self._callers:
            return None
        return max(min(map(self._deadline, self._callers)) - time.monotonic(), 0.0)

    def _answer(self, listening: socket.socket) -> None:
        assert self._certificate is not None
        try:
            connection, (address, *_) = listening.accept()
        except OSError:
            return  # gone again, or no descriptor is left
        if sum(caller.address == address for caller in self._callers) >= MOST_OF_ONE:
            connection.close()
            return
        connection.setblocking(False)
        try:
            secured = self._certificate.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        except OSError:
            connection.close()  # gone again
            return
        caller = _Caller(secured, address, time.monotonic())
        self._callers.append(caller)
        self._selector.register(secured, EVENT_READ, caller)

    def _hear(self, caller: _Caller) -> None:
        try:
            if not caller.met:
                caller.connection.do_handshake()
                caller.met = True
            while len(caller.token) < TOKEN:
                more = caller.connection.recv(TOKEN - len(caller.token))
                if not more:
                    self._drop(caller)
                    return
                caller.token += more
        except ssl.SSLWantReadError:
            self._selector.modify(caller.connection, EVENT_READ, caller)
        except ssl.SSLWantWriteError:
            self._selector.modify(caller.connection, EVENT_WRITE, caller)
        except OSError:
            self._drop(caller)
        else:
            self._selector.unregister(caller.connection)

    def _check(self, caller: _Caller) -> None:
        # Which digest is expected may be known to all, so a look-up gives nothing away. It may still be on its way.
        arrived = self._expected.pop(hashlib.sha256(caller.token).digest(), None)
        if arrived is not None:
            self._callers.remove(caller)
            stream = SecuredStream(caller.connection)
            try:
                stream.write([ACCEPTED])
            except OSError:
                stream.close()  # its node will say so
            else:
                arrived(stream)
        elif time.monotonic() >= self._deadline(caller):
            self._drop(caller)

    def _drop(self, caller: _Caller) -> None:
        self._callers.remove(caller)
        if len(caller.token) < TOKEN:
            self._selector.unregister(caller.connection)
        caller.connection.close()


def _listen(address: str, ports: range | None) -> socket.socket | None:
    for port in [0] if ports is None else random.sample(ports, min(len(ports), TRIES)):
        listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a range may be small
            listening.bind((address, port))
            listening.listen(BACKLOG)
            listening.setblocking(False)
        except OSError:
            listening.close()
        else:
            return listening
    return None
