"""The store contract over a connection to another process; :mod:`~lattice.stores.served_frames` tells of the wire."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import cycle
from typing import TYPE_CHECKING

from lattice.core.dataclass import replace
from lattice.core.keyspace import Commit, Snapshot, Transaction
from lattice.errors import StoreUnavailable, UsageError
from lattice.stores import Sink
from lattice.stores.served_line import Line, ServedWatch, connect
from lattice.stores.served_server import StoreServer
from lattice.stores.served_values import dump_transaction, load_commit, load_snapshot

if TYPE_CHECKING:
    import ssl

__all__ = ["ServedStore", "StoreServer", "served_at"]


class ServedStore:
    """
    A store that another process serves. A sink runs in the thread that reads the connection: it may cancel its watch,
    but make no other call.

    :param dial: makes a connection; called again when one is broken
    """

    def __init__(self, dial: Callable[[], Line]) -> None:
        self._dial = dial
        self._lock = threading.Lock()
        self._line: Line | None = None
        self._closed = False

    def identity(self) -> str:
        """Name the data: that of the memory store behind it."""
        return str(self._current().ask("identity"))

    def read(self, key: str, *, prefix: bool = False) -> Snapshot:
        """Read one key, or everything that begins with it."""
        return load_snapshot(self._current().ask("read", key, prefix))

    def commit(self, transaction: Transaction) -> Commit:
        """Apply a transaction if its guards hold."""
        line = self._current()
        commit = load_commit(line.ask("commit", *dump_transaction(transaction)))
        return replace(commit, identity=line.identity()) if transaction.read else commit

    def watch(self, prefix: str, after: int, sink: Sink) -> ServedWatch:
        """Put every change below a prefix into a sink, beginning with the revision after ``after``."""
        return self._current().watch(prefix, after, sink)

    def grant(self, ttl: float, lease: int = 0) -> int:
        """Make a lease, or keep the one of that id."""
        return int(self._current().ask("grant", ttl, lease))

    def keep_alive(self, lease: int) -> float:
        """Renew a lease and tell the seconds it now has, 0 if there is no such lease."""
        return float(self._current().ask("keep_alive", lease))

    def remaining(self, lease: int) -> float:
        """Tell how many seconds a lease has left, 0 if there is no such lease."""
        return float(self._current().ask("remaining", lease))

    def revoke(self, lease: int) -> None:
        """End a lease with all its keys."""
        self._current().ask("revoke", lease)

    def close(self) -> None:
        """End all watches and the connection. Leases stay until they lapse."""
        with self._lock:
            self._closed = True
            line, self._line = self._line, None
        if line is not None:
            line.close()

    def _current(self) -> Line:
        with self._lock:
            if self._closed:
                raise StoreUnavailable("the connection to the store is closed.")
            if self._line is not None and self._line.broken is None:
                return self._line
            self._line = self._dial()
            return self._line


def served_at(
    endpoints: tuple[tuple[str, int], ...],
    secret: bytes,
    request_timeout: float = 2.0,
    tls: ssl.SSLContext | None = None,
) -> ServedStore:
    """
    Open a store that is served at some address.

    :param endpoints: hosts and ports, tried in turn
    :param secret: what the server knows too
    :param request_timeout: seconds after which a call without an answer fails
    :param tls: if the server has to speak TLS
    :raises UsageError: no address is given
    """
    if not endpoints:
        raise UsageError("no address of a store is given. Set --rdzv_endpoint HOST:PORT (LATTICE_RDZV_ENDPOINT).")
    turns = cycle(endpoints)

    def dial() -> Line:
        host, port = next(turns)
        return connect(host, port, secret, request_timeout, tls)

    return ServedStore(dial)
