"""A memory store for other machines: one thread, one socket for each peer, nothing said before a peer proved itself."""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lattice.core.keyspace import Batch
from lattice.errors import LatticeError, StoreRefused, UsageError
from lattice.stores.memory import MemoryStore, MemoryWatch
from lattice.stores.served_frames import (
    GREETING,
    HELLO,
    MAGIC,
    NONCE,
    REFUSAL,
    Opener,
    Sealer,
    UntrustedError,
    proof,
    same,
)
from lattice.stores.served_values import (
    dump,
    dump_batch,
    dump_commit,
    dump_error,
    dump_snapshot,
    load,
    load_transaction,
)

if TYPE_CHECKING:
    import ssl

    from lattice.stores.served_tls import Accepted

HANDSHAKE_TIMEOUT = 5.0
"""seconds in which a peer must prove itself"""
MAX_STRANGERS = 256
"""connections that have not proved themselves; the oldest goes when there is one more"""
MAX_QUEUED = 256 << 20
"""bytes that may wait for a peer that does not read them"""


class Peer:
    """One connection; only the server's thread touches it, except for :attr:`outbox`."""

    def __init__(
        self, connection: socket.socket | Accepted, store: MemoryStore, secret: bytes, wake: Callable[[Peer], None]
    ):
        self.connection = connection
        self.since = time.monotonic()
        self.trusted = False
        self.closing = False
        self.outbox: deque[bytes] = deque()
        self.sending = bytearray()
        self._store = store
        self._secret = secret
        self._wake = wake
        self._nonce = os.urandom(NONCE)
        self._hello = bytearray()
        self._watches: dict[int, MemoryWatch] = {}
        self.sending += MAGIC + self._nonce
        assert len(self.sending) == GREETING

    def received(self, data: bytes) -> None:
        """
        Act on what came.

        :raises UntrustedError: if the peer has to go
        """
        if not self.trusted:
            self._hello += data
            if not MAGIC.startswith(self._hello[: len(MAGIC)]) or len(self._hello) > HELLO:
                # An honest client waits for our proof before it says more than its hello.
                raise UntrustedError("no hello of a Lattice client")
            if len(self._hello) == HELLO:
                self._judge(bytes(self._hello[len(MAGIC) :]))
            return
        for body in self._opener.feed(data):
            try:
                self._answer(load(body))
            except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
                raise UntrustedError(f"a request that cannot be read: {error!r}") from None

    def pack(self) -> None:
        """Move what waits in the outbox to the bytes that are being sent."""
        while self.outbox:
            self.sending += self._sealer.seal(self.outbox.popleft())

    def close(self) -> None:
        """End its watches and the connection."""
        for watch in self._watches.values():
            watch.cancel()
        self.connection.close()

    def _judge(self, hello: bytes) -> None:
        nonce, given = hello[:NONCE], hello[NONCE:]
        if not same(given, proof(self._secret, "client", self._nonce, nonce)):
            self.sending += REFUSAL
            self.closing = True
            return
        self.sending += proof(self._secret, "server", self._nonce, nonce)
        self._sealer = Sealer(self._secret, "server", self._nonce, nonce)
        self._opener = Opener(self._secret, "client", self._nonce, nonce)
        self.trusted = True

    def _answer(self, request: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"id": int(request["id"])}
        try:
            answer["result"] = self._perform(str(request["call"]), request["args"])
        except LatticeError as error:
            answer |= dump_error(error)
        self.outbox.append(dump(answer))

    def _perform(self, call: str, args: list[Any]) -> Any:
        store = self._store
        match call, args:
            case "identity", []:
                return store.identity()
            case "read", [str(key), bool(prefix)]:
                return dump_snapshot(store.read(key, prefix=prefix))
            case "commit", [list(), list()] | [list(), list(), str()]:
                return dump_commit(store.commit(load_transaction(args)))
            case "watch", [int(watch), str(prefix), int(after)]:
                self._watches[watch] = store.watch(prefix, after, lambda item: self._push(watch, item))
            case "cancel", [int(watch)]:
                if watch in self._watches:
                    self._watches.pop(watch).cancel()
            case "grant", [int() | float() as ttl, int(lease)]:
                return store.grant(ttl, lease)
            case "keep_alive", [int(lease)]:
                return store.keep_alive(lease)
            case "remaining", [int(lease)]:
                return store.remaining(lease)
            case "revoke", [int(lease)]:
                store.revoke(lease)
            case _:
                raise StoreRefused(f"the served store knows no call {call!r} of this form.")
        return None

    def _push(self, watch: int, item: Batch | LatticeError) -> None:
        said = dump_error(item) if isinstance(item, LatticeError) else {"batch": dump_batch(item)}
        self.outbox.append(dump({"watch": watch, **said}))
        self._wake(self)


class StoreServer:
    """
    Serves a memory store until closed. The store stays the caller's, who may use it directly meanwhile.

    :param host: address or name to listen at, empty for all; None to listen nowhere, for :meth:`adopt` alone
    :param port: port to listen on, 0 to have one chosen
    :param secret: what clients have to know
    :param tls: if those who connect have to speak TLS; those that are adopted need not
    :raises UsageError: if the address cannot be had
    """

    def __init__(
        self, store: MemoryStore, host: str | None, port: int, secret: bytes, tls: ssl.SSLContext | None = None
    ) -> None:
        self._store = store
        self._secret = secret
        self._tls = tls
        self._listener = None if host is None else _listen(host, port)
        self.port: int = 0 if self._listener is None else self._listener.getsockname()[1]
        self._peers: dict[int, Peer] = {}
        self._adopted: deque[socket.socket] = deque()
        self._dirty: deque[Peer] = deque()
        self._closed = False
        self._bell, self._button = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for end in (self._bell, self._button):
            end.setblocking(False)
        self._selector.register(self._bell, selectors.EVENT_READ)
        if self._listener is not None:
            self._listener.setblocking(False)
            self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="lattice-store", daemon=True)
        self._thread.start()

    def adopt(self, connection: socket.socket) -> None:
        """Serve one who is connected already, by a stream socket that is from now on the server's."""
        self._adopted.append(connection)
        self._ring()

    def close(self) -> None:
        """Close every connection and stop listening."""
        self._closed = True
        self._ring()
        self._thread.join()

    def _serve(self) -> None:
        try:
            while not self._closed:
                strangers = [peer for peer in self._peers.values() if not peer.trusted]
                for key, events in self._selector.select(_patience(strangers)):
                    if self._listener is not None and key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is self._bell:
                        self._bell.recv(4096)
                    elif (peer := self._peers.get(key.fd)) is not None:
                        self._attend(peer, events)
                while self._adopted:
                    adopted = self._adopted.popleft()
                    adopted.setblocking(False)
                    self._welcome(adopted)
                while self._dirty:
                    self._flush(self._dirty.popleft())
                self._drop_slow_strangers()
        finally:
            for peer in list(self._peers.values()):
                self._drop(peer)
            self._selector.close()
            for one in (self._listener, self._bell, self._button, *self._adopted):
                if one is not None:
                    one.close()

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return  # It gave up, or we are out of file descriptors: both pass.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # A machine that lost its power never says goodbye.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
        connection.setblocking(False)
        if self._tls is None:
            self._welcome(connection)
            return
        from lattice.stores.served_tls import Accepted

        try:
            self._welcome(Accepted(connection, self._tls))
        except OSError:
            connection.close()  # it has gone already

    def _welcome(self, connection: socket.socket | Accepted) -> None:
        peer = Peer(connection, self._store, self._secret, self._wake)
        self._peers[connection.fileno()] = peer
        self._selector.register(connection, selectors.EVENT_READ)
        self._flush(peer)

    def _attend(self, peer: Peer, events: int) -> None:
        try:
            if events & selectors.EVENT_READ:
                data = peer.connection.recv(1 << 18)
                if not data:
                    self._drop(peer)
                    return
                peer.received(data)
        except BlockingIOError:
            pass
        except (OSError, UntrustedError):
            self._drop(peer)
            return
        self._flush(peer)

    def _flush(self, peer: Peer) -> None:
        fd = peer.connection.fileno()
        if fd < 0:
            return
        peer.pack()
        try:
            while peer.sending:
                del peer.sending[: peer.connection.send(peer.sending[: 1 << 18])]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(peer)
            return
        if len(peer.sending) > MAX_QUEUED or (peer.closing and not peer.sending):
            self._drop(peer)
            return
        can_send = peer.sending and not getattr(peer.connection, "must_hear", False)
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if can_send else 0)
        self._selector.modify(peer.connection, wanted)

    def _drop(self, peer: Peer) -> None:
        if self._peers.pop(peer.connection.fileno(), None) is not None:
            self._selector.unregister(peer.connection)
            peer.close()

    def _drop_slow_strangers(self) -> None:
        strangers = sorted((peer for peer in self._peers.values() if not peer.trusted), key=lambda peer: peer.since)
        late = time.monotonic() - HANDSHAKE_TIMEOUT
        for index, peer in enumerate(strangers):
            if peer.since < late or index < len(strangers) - MAX_STRANGERS:
                self._drop(peer)

    def _wake(self, peer: Peer) -> None:
        self._dirty.append(peer)
        if threading.current_thread() is not self._thread:
            self._ring()

    def _ring(self) -> None:
        try:
            self._button.send(b"!")
        except OSError:
            pass  # It has rung often enough to wake anybody, or the server is closed.


def _patience(strangers: list[Peer]) -> float | None:
    if not strangers:
        return None
    return max(0.0, min(peer.since for peer in strangers) + HANDSHAKE_TIMEOUT - time.monotonic()) + 0.01


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        families = [one[0] for one in found]
        both = socket.AF_INET6 in families and socket.has_dualstack_ipv6()
        # Without a host all who come are meant, whichever of the two they speak.
        family = socket.AF_INET6 if both and not host else families[0]
        both = both and family == socket.AF_INET6
        return socket.create_server((host, port), family=family, backlog=512, dualstack_ipv6=both)
    except OSError as error:
        step = "Stop what uses it, or choose another with --rdzv_endpoint HOST:PORT (LATTICE_RDZV_ENDPOINT)."
        raise UsageError(f"cannot serve the store at {host or '*'}:{port}: {error.strerror or error}. {step}") from None
