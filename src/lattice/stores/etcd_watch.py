"""A watch on etcd: one stream, one thread that reads it, one sink."""

from __future__ import annotations

import threading
from typing import Any

from lattice.core.keyspace import Batch, KeyValue, Removed
from lattice.errors import Compacted, LatticeError, StoreUnavailable
from lattice.stores import Sink
from lattice.stores.etcd_client import EtcdClient
from lattice.stores.etcd_connection import Stream
from lattice.stores.etcd_messages import DELETE


class Denied(StoreUnavailable):
    """etcd did not let a watch begin, and said why."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"etcd at {name} refused a watch: {text}.")
        self.text = text


class EtcdWatch:
    """
    A running watch. The sink is called with the lock held, so that :meth:`cancel` cannot overtake a call of it.

    :param client: told when the stream breaks, so that the next call goes elsewhere
    :param stream: a new watch stream
    """

    def __init__(self, client: EtcdClient, stream: Stream, sink: Sink) -> None:
        self._client = client
        self._stream = stream
        self._sink = sink
        self._lock = threading.RLock()
        self._over = False
        self._begun = threading.Event()
        self._failure: LatticeError | None = None
        self._thread = threading.Thread(target=self._read, name="lattice-watch", daemon=True)

    @property
    def over(self) -> bool:
        """Whether nothing comes any more."""
        return self._over

    @property
    def endpoint(self) -> str:
        """Where it watches."""
        return self._stream.connection.name

    def begin(self) -> None:
        """
        Wait until etcd has confirmed that it will send the changes.

        :raises Denied: if etcd said no
        :raises LatticeError: if it did not answer
        """
        self._thread.start()
        connection = self._stream.connection
        if not self._begun.wait(self._client.timeout):
            late = StoreUnavailable(f"etcd at {connection.name}: timed out, no watch within {self._client.timeout:g}s.")
            self._client.drop(connection, late)
            self.cancel()
            raise late
        if self._failure is not None:
            self.cancel()
            raise self._failure

    def cancel(self) -> None:
        """End it; after this returns the sink is not called again."""
        with self._lock:
            self._over = True
        self._stream.cancel()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _read(self) -> None:
        try:
            for response in self._stream:
                if not self._take(response):
                    break
        except LatticeError as error:
            if not self._over:
                self._client.drop(self._stream.connection, error)
            self._end(error)
        self._stream.cancel()

    def _take(self, response: Any) -> bool:
        name = self._stream.connection.name
        if response.canceled:
            if response.compact_revision:
                self._begun.set()
                oldest = response.compact_revision
                self._end(Compacted(f"etcd at {name}: the oldest revision it keeps is {oldest}."))
            elif not self._begun.is_set():
                self._end(Denied(name, response.cancel_reason.removeprefix("etcdserver: ") or "no reason given"))
            else:
                self._end(StoreUnavailable(f"etcd at {name}: it ended a watch ({response.cancel_reason})."))
            return False
        if response.created:
            self._begun.set()
        if response.events:
            changes = tuple([_change(event) for event in response.events])
            self._put(Batch(changes, response.events[-1].kv.mod_revision))
        return not self._over

    def _put(self, item: Batch | LatticeError) -> None:
        with self._lock:
            if not self._over:
                self._sink(item)

    def _end(self, error: LatticeError) -> None:
        with self._lock:
            if self._begun.is_set():
                self._put(error)
            else:
                self._failure = error
            self._over = True
            self._begun.set()


def _change(event: Any) -> KeyValue | Removed:
    kv = event.kv
    key = kv.key.decode(errors="replace")
    if event.type == DELETE:
        return Removed(key, kv.mod_revision)
    return KeyValue(key, kv.value, kv.create_revision, kv.mod_revision, kv.lease)
