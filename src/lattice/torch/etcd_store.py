"""A c10d store on the run's etcd: a process group whose store lives on whichever worker is lost."""

from __future__ import annotations

import math
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from random import random
from typing import ClassVar

import torch.distributed as dist

from lattice.errors import StoreRefused, StoreUnavailable
from lattice.torch.gateway import Body, Gateway, decoded, encoded

OPERATIONS = 64
"""operations in one transaction; etcd allows 128 unless told otherwise"""
WATCH_SPAN = 10.0
"""seconds for which a silent watch is believed: its server may be hung or cut off"""
ANSWER_SPAN = 1.0
"""seconds that every single request gets: a short timeout bounds the wait for a key, not for an answer"""


@dataclass(slots=True)
class _Receipt:
    """A key that only one call at a time writes, together with what it changes: it tells whether it was applied."""

    key: bytes
    owner: int
    """the process that writes it: a forked child gets copies and must not use them"""
    revision: int = 0


class EtcdStore(dist.Store):
    """
    A :class:`torch.distributed.Store` whose keys are etcd's.

    It goes on over restarts of etcd and dead endpoints until its timeout, and then raises what torch's own stores
    raise: :class:`torch.distributed.DistStoreError` when a key did not appear, and
    :class:`torch.distributed.DistNetworkError` when etcd did not answer.

    :param gateway: the connection to etcd
    :param prefix: what all keys begin with, ending in a slash
    :param lease: the lease that all keys are bound to, 0 for none
    :param timeout: how long calls wait, zero for ever
    """

    # torch holds the C++ half of a store only. When the Python half goes, every call through torch fails.
    _alive: ClassVar[list[EtcdStore]] = []

    timeout: timedelta
    """how long calls wait; kept by torch, which changes it through wrappers of this store too"""

    def __init__(
        self, gateway: Gateway, prefix: str, lease: int = 0, timeout: timedelta = timedelta(seconds=300)
    ) -> None:
        super().__init__()
        self._gateway = gateway
        self._prefix = prefix
        self._lease = lease
        self._receipts: list[_Receipt] = []
        self.set_timeout(timeout)
        EtcdStore._alive.append(self)

    def clone(self) -> EtcdStore:
        """Give another store on the same keys, for another thread of torch's."""
        return EtcdStore(self._gateway, self._prefix, self._lease, self.timeout)

    def close(self) -> None:
        """Close its connections and let go of it; only for a store that torch does not use any more."""
        self._gateway.close()
        EtcdStore._alive = [other for other in EtcdStore._alive if other is not self]

    def set(self, key: str, value: str | bytes) -> None:
        """Write a key."""
        self.multi_set([key], [value])

    def get(self, key: str) -> bytes:
        """Read a key; wait until it is there."""
        return self._await(key, self.timeout, self._deadline())

    def add(self, key: str, value: int) -> int:
        """Add to a number, which begins with 0 and is kept as decimal text; exactly once."""
        return int(self._change(key, lambda old: str(int(old or b"0") + value).encode()))

    def append(self, key: str, value: str | bytes) -> None:
        """Write at the end of what is there; exactly once."""
        self._change(key, lambda old: (old or b"") + _bytes(value))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """
        Wait until all keys are there.

        :param keys: the keys
        :param timeout: how long, instead of the store's own timeout
        """
        span = self.timeout if timeout is None else timeout
        deadline = self._deadline(span)
        for key, there in zip(keys, self._read(keys, deadline), strict=True):
            if there is None:
                self._await(key, span, deadline)

    def check(self, keys: Sequence[str]) -> bool:
        """Tell whether all keys are there, without waiting."""
        return None not in self._read(keys, self._deadline())

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """
        Write a key if it has an expected value; an empty one also stands for a key that is not there.

        :return: what the key has afterwards, or the expected value if there is no such key
        """
        name, expected, desired = self._name(key), _bytes(expected_value), _bytes(desired_value)
        same = {"key": encoded(name), "target": "VALUE", "result": "EQUAL", "value": encoded(expected)}
        absent = {"key": encoded(name), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
        current: bytes | None = None
        for guard in [same] if expected else [absent, same]:
            success, failure = [self._put(name, desired)], [_range(name)]
            answer = self._transaction([guard], success, failure, self._deadline())
            if answer.get("succeeded"):
                return desired
            current = _value(answer["responses"][0]["response_range"])
        return expected if current is None else current

    def delete_key(self, key: str) -> bool:
        """Remove a key; tell whether it was there."""
        answer = self._call("/v3/kv/deleterange", {"key": encoded(self._name(key))}, self._deadline())
        return int(answer.get("deleted", 0)) > 0

    def num_keys(self) -> int:
        """Count the keys."""
        return int(self._call("/v3/kv/range", self._everything(count_only=True), self._deadline()).get("count", 0))

    def list_keys(self) -> list[str]:
        """List the keys."""
        answer = self._call("/v3/kv/range", self._everything(keys_only=True), self._deadline())
        return [decoded(found["key"])[len(self._name("")) :].decode() for found in answer.get("kvs", [])]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Read several keys; wait until all are there."""
        deadline = self._deadline()
        found = self._read(keys, deadline)
        return [
            self._await(key, self.timeout, deadline) if value is None else value
            for key, value in zip(keys, found, strict=True)
        ]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Write several keys."""
        # One transaction may name a key once: of several values the last one counts, as if written in turn.
        puts = [self._put(self._name(k), _bytes(v)) for k, v in dict(zip(keys, values, strict=True)).items()]
        deadline = self._deadline()
        for begin in range(0, len(puts), OPERATIONS):
            self._transaction([], puts[begin : begin + OPERATIONS], [], deadline)

    def has_extended_api(self) -> bool:
        """Tell that append, multi_get and multi_set are there."""
        return True

    # The names under which torch's C++ side looks for these two.
    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815

    def _await(self, key: str, span: timedelta, deadline: float) -> bytes:
        name = self._name(key)
        while True:
            answer = self._call("/v3/kv/range", {"key": encoded(name)}, deadline)
            value = _value(answer)
            if value is not None:
                return value
            # From the very next revision on: what was written since the read is seen.
            believed = min(deadline, time.monotonic() + WATCH_SPAN)
            if self._gateway.watch(name, int(answer["header"]["revision"]), believed):
                continue
            if time.monotonic() >= deadline:
                milliseconds = span / timedelta(milliseconds=1)
                raise dist.DistStoreError(f"wait timeout after {milliseconds:.0f}ms, keys: /{key}")
            # A watch that broke at once must not turn this into a busy loop.
            time.sleep(0.02)

    def _change(self, key: str, compute: Callable[[bytes | None], bytes]) -> bytes:
        """
        Replace a value by one that depends on it.

        A transaction whose answer got lost is sent again. Its receipt, guarded and written with it, keeps it from
        being applied twice, and holds what it wrote.
        """
        name, deadline = self._name(key), self._deadline()
        receipt = self._receipt()
        current, revision = None, 0
        while True:
            value = compute(current)
            guards = [_unchanged(name, revision), _unchanged(receipt.key, receipt.revision)]
            success = [self._put(name, value), self._put(receipt.key, value)]
            answer = self._transaction(guards, success, [_range(name), _range(receipt.key)], deadline)
            if answer.get("succeeded"):
                receipt.revision = int(answer["header"]["revision"])
                break
            there, mine = (response["response_range"] for response in answer["responses"])
            written = _revision(mine)
            applied, receipt.revision = written > receipt.revision, written
            if applied:
                value = _value(mine) or b""
                break
            current, revision = _value(there), _revision(there)
            # Others write the same key: let them not meet again and again.
            time.sleep(0.005 * random())
        self._receipts.append(receipt)
        return value

    def _receipt(self) -> _Receipt:
        process = os.getpid()
        try:
            while (receipt := self._receipts.pop()).owner != process:
                pass
            return receipt
        except IndexError:
            return _Receipt(self._prefixed(f"receipts/{uuid.uuid4().hex}"), process)

    def _read(self, keys: Sequence[str], deadline: float) -> list[bytes | None]:
        found: list[bytes | None] = []
        for begin in range(0, len(keys), OPERATIONS):
            reads = [_range(self._name(key)) for key in keys[begin : begin + OPERATIONS]]
            answer = self._transaction([], reads, [], deadline)
            found += [_value(response["response_range"]) for response in answer["responses"]]
        return found

    def _transaction(self, guards: list[Body], success: list[Body], failure: list[Body], deadline: float) -> Body:
        return self._call("/v3/kv/txn", {"compare": guards, "success": success, "failure": failure}, deadline)

    def _call(self, path: str, body: Body, deadline: float) -> Body:
        with _torch_errors():
            return self._gateway.call(path, body, max(deadline, time.monotonic() + ANSWER_SPAN))

    def _put(self, name: bytes, value: bytes) -> Body:
        return {"request_put": {"key": encoded(name), "value": encoded(value), "lease": str(self._lease)}}

    def _everything(self, **options: bool) -> Body:
        first = self._name("")
        # The end of a prefix is the prefix with its last byte, a slash, raised by one.
        return {"key": encoded(first), "range_end": encoded(first[:-1] + b"0"), **options}

    def _name(self, key: str) -> bytes:
        return self._prefixed(f"keys/{key}")

    def _prefixed(self, name: str) -> bytes:
        return f"{self._prefix}{name}".encode()

    def _deadline(self, span: timedelta | None = None) -> float:
        seconds = (self.timeout if span is None else span).total_seconds()
        return time.monotonic() + seconds if seconds else math.inf


@contextmanager
def _torch_errors() -> Iterator[None]:
    try:
        yield
    except StoreUnavailable as error:
        raise dist.DistNetworkError(str(error)) from error
    except StoreRefused as error:
        raise dist.DistStoreError(str(error)) from error


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _range(name: bytes) -> Body:
    return {"request_range": {"key": encoded(name)}}


def _unchanged(name: bytes, revision: int) -> Body:
    return {"key": encoded(name), "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}


def _value(answer: Body) -> bytes | None:
    kvs = answer.get("kvs")
    return decoded(kvs[0].get("value", "")) if kvs else None


def _revision(answer: Body) -> int:
    kvs = answer.get("kvs")
    return int(kvs[0]["mod_revision"]) if kvs else 0
