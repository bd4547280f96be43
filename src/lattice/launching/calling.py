"""The node's part in its move to a TLS connection: it calls the launcher, and trusts only the one that it knows."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from selectors import EVENT_WRITE, DefaultSelector
from typing import Any

from lattice.launching.certificate import fingerprint
from lattice.launching.channel import BrokenChannelError, Channel, Kind
from lattice.launching.reception import ACCEPTED, TOKEN
from lattice.launching.secured import SecuredStream

CONNECTING = 5.0
"""seconds for a connection: a firewall that says nothing is known by it"""
CALLING = 15.0
"""seconds for all; the launcher's machine may be busy"""
PAUSE = 0.2
"""seconds before another try, after a connection that broke"""

Address = tuple[str, int]


class Unreached(Exception):
    """Nobody was there, or not the launcher."""


class Caller:
    """Calls when it is asked to, and moves the channel over."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._stream: SecuredStream | None = None
        self._reached = threading.Event()

    def received(self, body: bytes) -> None:
        """Take what the launcher says about it."""
        said: dict[str, Any] = json.loads(body)
        if "moved" in said:
            self._reached.wait()  # it was told so through the new stream before, and is about to notice
            assert self._stream is not None
            self._channel.receive_from(self._stream)
        else:
            # Not in the thread that receives, which has to hear meanwhile that the launcher is there.
            threading.Thread(target=self._call, args=(said,), name="calling", daemon=True).start()

    def _call(self, offer: dict[str, Any]) -> None:
        token = os.urandom(TOKEN)
        try:
            self._channel.tell(Kind.CALL, commitment=hashlib.sha256(token).hexdigest())
            try:
                addresses = [(host, port) for host, port in offer["addresses"]]
                self._stream = reach(addresses, bytes.fromhex(offer["fingerprint"]), token)
            except Unreached as why:
                self._channel.tell(Kind.CALL, failed=str(why))
            else:
                self._reached.set()
                self._channel.send_through(self._stream)
        except BrokenChannelError:
            pass  # whoever listens to it leaves


def reach(addresses: Sequence[Address], known_by: bytes, token: bytes) -> SecuredStream:
    """
    Connect to the launcher.

    :param addresses: where it may be reached
    :param known_by: the fingerprint of its certificate
    :param token: what it knows us by; shown to nobody else
    :raises Unreached: says of each address why
    """
    deadline = time.monotonic() + CALLING
    left = list(addresses)
    problems: dict[Address, str] = {}
    while left:
        connection, address = _connect(left, problems)
        if connection is None:
            break
        try:
            return _introduce(connection, known_by, token, deadline)
        except _Impostor:
            problems[address] = "somebody else answers there"
            left.remove(address)
        except OSError as error:
            problems[address] = f"the connection broke: {error}"
            if time.monotonic() + PAUSE >= deadline:
                break
            time.sleep(PAUSE)  # we may have been one of too many
    raise Unreached("; ".join(f"{host} port {port}: {problems[host, port]}" for host, port in addresses))


class _Impostor(Exception):
    pass


def _connect(addresses: Sequence[Address], problems: dict[Address, str]) -> tuple[socket.socket | None, Address]:
    """Try all at once, take the first that answers, and note what is wrong with others."""
    deadline = time.monotonic() + CONNECTING
    problems |= dict.fromkeys(addresses, f"no answer within {CONNECTING:g}s")
    with contextlib.ExitStack() as rest, DefaultSelector() as selector:
        for address in addresses:
            trying = rest.enter_context(socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET))
            trying.setblocking(False)
            code = trying.connect_ex(address)
            if code in (0, errno.EINPROGRESS):
                selector.register(trying, EVENT_WRITE, address)
            else:
                problems[address] = os.strerror(code)
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(max(deadline - time.monotonic(), 0)):
                assert isinstance(key.fileobj, socket.socket)
                code = key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code == 0:
                    return key.fileobj.dup(), key.data
                problems[key.data] = os.strerror(code)
                selector.unregister(key.fileobj)
    return None, addresses[0]


def _introduce(connection: socket.socket, known_by: bytes, token: bytes, deadline: float) -> SecuredStream:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # It must be this very certificate: neither names, nor clocks, nor who signed it play a part.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection.settimeout(max(deadline - time.monotonic(), PAUSE))
    with contextlib.ExitStack() as failed:
        failed.callback(connection.close)
        secured = failed.enter_context(context.wrap_socket(connection))
        if not hmac.compare_digest(fingerprint(secured.getpeercert(binary_form=True) or b""), known_by):
            raise _Impostor
        secured.sendall(token)
        if secured.recv(len(ACCEPTED)) != ACCEPTED:
            raise ConnectionError("it was closed by the launcher")
        failed.pop_all()
    return SecuredStream(secured)
