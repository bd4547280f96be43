"""The store contract on etcd's v3 API."""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable
from typing import Any

from lattice.core.keyspace import Commit, CreatedAt, KeyValue, Put, Snapshot, Transaction
from lattice.core.keyvalue import MARKER, check
from lattice.stores import Sink
from lattice.stores.etcd_client import Endpoints, EtcdClient
from lattice.stores.etcd_messages import CREATE, EQUAL, MESSAGES, MOD
from lattice.stores.etcd_reasons import Answered, refusal
from lattice.stores.etcd_watch import Denied, EtcdWatch


class EtcdStore:
    """
    etcd 3.4 or newer. Nothing is sent before the first call.

    :param endpoints: hosts and ports of members, tried in turn; or what gives them, asked for every connection
    :param user: name of one of etcd's users, empty for none
    :param cacert: path of the authority's certificate; it, or a certificate of our own, means TLS
    :param cert: path of our certificate
    :param key: path of our key
    :param server_name: the name that etcd's certificate is for, if not the endpoint's
    :param request_timeout: seconds after which a call without an answer fails
    :raises UsageError: if a file cannot be read
    """

    def __init__(
        self,
        endpoints: Endpoints | Callable[[], Endpoints],
        user: str = "",
        password: str = "",
        cacert: str = "",
        cert: str = "",
        key: str = "",
        server_name: str = "",
        request_timeout: float = 2.0,
    ) -> None:
        tls = (cacert, cert, key)
        self._client = EtcdClient(endpoints, user, password, tls, request_timeout, server_name)
        self._lock = threading.Lock()
        self._watches: set[EtcdWatch] = set()

    def identity(self) -> str:
        """
        Return the name of the data: etcd's cluster id, and the marker that the first client left in it.

        The id alone does not tell: an etcd that was wiped and started with the same options has it again.
        """
        return self.commit(Transaction((), read=MARKER)).identity

    def read(self, key: str, *, prefix: bool = False) -> Snapshot:
        """Read one key, or everything that begins with it. Linearizable."""
        start, end = _span(key, prefix)
        response = self._client.call("Range", key=start, range_end=end)
        return Snapshot(_items(response), response.header.revision)

    def commit(self, transaction: Transaction) -> Commit:
        """Apply a transaction if its guards hold."""
        check(transaction)
        compare = []
        for guard in transaction.guards:
            if isinstance(guard, CreatedAt):
                target = {"target": CREATE, "create_revision": guard.revision}
            else:
                target = {"target": MOD, "mod_revision": guard.revision}
            compare.append(MESSAGES["Compare"](result=EQUAL, key=guard.key.encode(), **target))
        success = []
        for operation in transaction.operations:
            if isinstance(operation, Put):
                put = {"key": operation.key.encode(), "value": operation.value, "lease": operation.lease}
                success.append(MESSAGES["RequestOp"](request_put=put))
            else:
                start, end = _span(operation.key, operation.prefix)
                success.append(MESSAGES["RequestOp"](request_delete_range={"key": start, "range_end": end}))
        failure = []
        if transaction.read:
            # A new one each time: this client may be the first one after the next wipe, too.
            token = secrets.token_hex(8)
            start, end = _span(transaction.read, True)
            failure.append(MESSAGES["RequestOp"](request_txn=_marked(token)))
            failure.append(MESSAGES["RequestOp"](request_range={"key": start, "range_end": end}))
        response = self._client.call("Txn", compare=compare, success=success + failure, failure=failure)
        if not transaction.read:
            return Commit(response.succeeded, response.header.revision)
        marker, found = response.responses[-2].response_txn, response.responses[-1].response_range
        if not marker.succeeded:
            token = marker.responses[0].response_range.kvs[0].value.decode(errors="replace")
        identity = f"{response.header.cluster_id:x}.{token}"
        return Commit(response.succeeded, response.header.revision, _items(found), identity)

    def watch(self, prefix: str, after: int, sink: Sink) -> EtcdWatch:
        """Put every change below a prefix into a sink, beginning with the revision after ``after``."""
        start, end = _span(prefix, True)
        create = MESSAGES["WatchCreateRequest"](key=start, range_end=end, start_revision=after + 1)
        request = MESSAGES["WatchRequest"](create_request=create)
        watch = EtcdWatch(self._client, self._client.stream("Watch", request), sink)
        try:
            watch.begin()
        except Denied:
            # etcd 3.4 says the same of a login that has expired as of a user who may not read.
            watch = EtcdWatch(self._client, self._client.stream("Watch", request, fresh_login=True), sink)
            try:
                watch.begin()
            except Denied as error:
                raise (refusal(watch.endpoint, error.text) or error) from None
        with self._lock:
            self._watches = {running for running in self._watches if not running.over} | {watch}
        return watch

    def grant(self, ttl: float, lease: int = 0) -> int:
        """Make a lease of whole seconds, or keep the one of that id. etcd raises a ttl below its minimum of about 2."""
        try:
            return int(self._client.call("LeaseGrant", ttl=max(1, math.ceil(ttl)), id=lease).id)
        except Answered as error:
            if error.code != "FAILED_PRECONDITION":
                raise
            return lease

    def keep_alive(self, lease: int) -> float:
        """Renew a lease and tell the seconds it now has, 0 if there is no such lease."""
        return float(max(0, self._client.call("LeaseKeepAlive", id=lease).ttl))

    def remaining(self, lease: int) -> float:
        """Tell how many seconds a lease has left, 0 if there is no such lease."""
        return float(max(0, self._client.call("LeaseTimeToLive", id=lease).ttl))

    def revoke(self, lease: int) -> None:
        """End a lease with all its keys; one that does not exist is fine."""
        try:
            self._client.call("LeaseRevoke", id=lease)
        except Answered as error:
            if error.code != "NOT_FOUND":
                raise

    def close(self) -> None:
        """End all watches and the connection. Leases stay until they lapse."""
        with self._lock:
            watches, self._watches = self._watches, set()
        for watch in watches:
            watch.cancel()
        self._client.close()


def _marked(token: str) -> Any:
    """Build the part of a transaction that reads the marker, or writes it if there is none."""
    key = MARKER.encode()
    absent = MESSAGES["Compare"](result=EQUAL, target=CREATE, key=key, create_revision=0)
    write = MESSAGES["RequestOp"](request_put={"key": key, "value": token.encode()})
    read = MESSAGES["RequestOp"](request_range={"key": key})
    return MESSAGES["TxnRequest"](compare=[absent], success=[write], failure=[read])


def _items(response: Any) -> tuple[KeyValue, ...]:
    return tuple(
        [
            KeyValue(kv.key.decode(errors="replace"), kv.value, kv.create_revision, kv.mod_revision, kv.lease)
            for kv in response.kvs
        ]
    )


def _span(key: str, prefix: bool) -> tuple[bytes, bytes]:
    start = key.encode()
    if not prefix:
        return start, b""
    if not start:
        return b"\0", b"\0"
    # No UTF-8 text contains 0xff, so the last byte can always be raised.
    return start, start[:-1] + bytes((start[-1] + 1,))
