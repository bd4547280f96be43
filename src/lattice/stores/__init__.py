"""The store contract: what rendezvous needs of etcd, and nothing more; three implementations, one suite."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from lattice.core.keyspace import Batch, Commit, Snapshot, Transaction
from lattice.core.spec import StoreSpec
from lattice.errors import LatticeError, UsageError
from lattice.stores.located import located

Sink = Callable[[Batch | LatticeError], None]
"""Where a watch puts what it sees, from any thread; an error is the last thing it puts."""


class Watch(Protocol):
    """A running watch."""

    def cancel(self) -> None:
        """End it; after this returns the sink is not called again."""


class Store(Protocol):
    """
    A key-value store with revisions, leases and watches. Calls block, and may be made from any thread.

    Every call raises :class:`~lattice.errors.StoreUnavailable` if there is no answer within the store's request
    timeout (one try at one endpoint; the next call goes to the next endpoint) and
    :class:`~lattice.errors.StoreRefused` if the answer is a final no.
    """

    def identity(self) -> str:
        """
        Return the name of the data behind this store: another name means other data.

        A store that lost everything has another name as soon as the first client asks for it.
        """

    def read(self, key: str, *, prefix: bool = False) -> Snapshot:
        """
        Read one key, or everything that begins with it. Linearizable.

        :param key: the key or prefix
        :param prefix: whether ``key`` is a prefix
        :return: what is there, the revision at which it was
        """

    def commit(self, transaction: Transaction) -> Commit:
        """
        Apply a transaction if its guards hold, and read what it asks for at the same moment.

        If it reads, the answer has the name of the data that was read. So a transaction without operations is the way
        to learn what there is and of which data it is.

        :raises StoreUnavailable: also when a lease that it names does not exist
        """

    def watch(self, prefix: str, after: int, sink: Sink) -> Watch:
        """
        Put every change below a prefix into a sink, beginning with the revision after ``after``.

        The sink gets :class:`~lattice.errors.Compacted` if that revision is no longer kept, and
        :class:`~lattice.errors.StoreUnavailable` when the watch broke.
        """

    def grant(self, ttl: float, lease: int = 0) -> int:
        """
        Make a lease.

        :param ttl: seconds without a keepalive after which it lapses with all its keys (etcd counts whole seconds)
        :param lease: the id to give it, 0 to have one chosen; a lease of that id that exists already is kept as it is
        :return: the id
        """

    def keep_alive(self, lease: int) -> float:
        """
        Renew a lease.

        :return: the seconds it now has, 0 if there is no such lease
        """

    def remaining(self, lease: int) -> float:
        """Tell how many seconds a lease has left, 0 if there is no such lease."""

    def revoke(self, lease: int) -> None:
        """End a lease with all its keys; one that does not exist is fine."""

    def close(self) -> None:
        """End all watches and connections. Leases stay until they lapse."""


def open_store(spec: StoreSpec, name: str) -> Store:
    """
    Open the store of a run, or of a job. Only what the chosen backend needs is imported, and nothing is sent yet.

    :param spec: backend, addresses and credentials
    :param name: of the run, or the job; stands in for a password that was not given, with the embedded backend
    :raises UsageError: if a file cannot be read, or an address is missing
    """
    match spec.backend:
        case "memory":
            from lattice.stores.memory import MemoryStore

            # Its one agent watches from what it has just read: changes of long ago would only grow with every restart.
            return MemoryStore(history=100)
        case "etcd":
            from lattice.stores.etcd import EtcdStore

            return EtcdStore(
                partial(located, spec) if spec.endpoints_file else spec.endpoints,
                spec.user,
                spec.password,
                spec.cacert,
                spec.cert,
                spec.key,
                spec.server_name,
                request_timeout=spec.request_timeout,
            )
        case "embedded":
            from lattice.stores.served import served_at

            tls_context = None
            if spec.cacert:
                from lattice.stores.served_tls import client_context

                tls_context = client_context(spec.cacert)
            return served_at(spec.endpoints, secret(spec, name), spec.request_timeout, tls_context)
    known = "memory, etcd, embedded"
    raise UsageError(f"no store is called {spec.backend!r}. Set --rdzv_backend (LATTICE_RDZV_BACKEND) to {known}.")


def secret(spec: StoreSpec, name: str) -> bytes:
    """Make the secret of an embedded store: from its password, or from a name, which keeps out only accidents."""
    from lattice.stores.served_frames import secret_of

    return secret_of(spec.password, name)
