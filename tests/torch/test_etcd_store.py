"""The calls that torch's own store tests make, over torch's TCP store and ours: both have to answer alike."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any, cast

import pytest
import torch.distributed as dist

from lattice.errors import StoreUnavailable
from lattice.torch import etcd_store
from lattice.torch.etcd_store import EtcdStore
from lattice.torch.gateway import Access, Body, Gateway
from tests.etcd_server import EtcdServer

SHORT = timedelta(milliseconds=250)
LONG = timedelta(seconds=60)


@pytest.fixture(autouse=True)
def close_stores() -> Iterator[None]:
    """Stores stay for the life of a worker; here they go with the test."""
    yield
    for store in EtcdStore._alive:
        store.close()


def new_store(server: EtcdServer, prefix: str = "", lease: int = 0, timeout: timedelta = LONG) -> EtcdStore:
    access = Access((server.endpoint,))
    return EtcdStore(Gateway(access), prefix or f"/lattice/{uuid.uuid4()}/c10d/1/shared/", lease, timeout)


@pytest.fixture(scope="session")
def tcp() -> dist.Store:
    return dist.TCPStore("127.0.0.1", 0, 1, True)


@pytest.fixture(params=["tcp", "etcd", "prefix over etcd"])
def store(request: pytest.FixtureRequest, etcd: EtcdServer, tcp: dist.Store) -> dist.Store:
    match request.param:
        case "tcp":
            tcp.set_timeout(LONG)
            return dist.PrefixStore(str(uuid.uuid4()), tcp)
        case "etcd":
            return new_store(etcd)
        case _:
            # Through C++: torch calls our Python methods by its own names, with its own types.
            return dist.PrefixStore("group", new_store(etcd))


def test_set_and_get(store: dist.Store) -> None:
    store.set("key", "value")
    assert store.get("key") == b"value"
    store.set("key", "other")
    assert store.get("key") == b"other"
    store.set("empty", "")
    assert store.get("empty") == b""
    store.set("größe/x y", "é")
    assert store.get("größe/x y") == "é".encode()


def test_values_are_bytes_of_any_kind(store: dist.Store) -> None:
    store.set("key", bytes(range(256)))  # type: ignore[arg-type]
    assert store.get("key") == bytes(range(256))


def test_add_counts_in_decimal_text(store: dist.Store) -> None:
    assert [store.add("number", n) for n in (1, 2, 3, -10)] == [1, 3, 6, -4]
    assert store.get("number") == b"-4"
    store.set("number", "40")
    assert store.add("number", 2) == 42
    assert store.add("untouched", 0) == 0


def test_compare_set(store: dist.Store) -> None:
    assert store.compare_set("key", "wrong", "new") == b"wrong"
    assert not store.check(["key"])
    store.set("key", "old")
    assert store.compare_set("key", "wrong", "new") == b"old"
    assert store.compare_set("key", "", "new") == b"old"
    assert store.compare_set("key", "old", "new") == b"new"
    assert store.get("key") == b"new"
    assert store.compare_set("fresh", "", "first") == b"first"
    assert store.get("fresh") == b"first"
    store.set("empty", "")
    assert store.compare_set("empty", "", "full") == b"full"


def test_delete_and_count(store: dist.Store) -> None:
    before = store.num_keys()
    store.add("number", 1)
    store.set("a", "1")
    store.set("b", "2")
    assert store.num_keys() == before + 3
    assert store.delete_key("a")
    assert not store.delete_key("a")
    assert not store.delete_key("never")
    assert store.num_keys() == before + 2
    assert store.check(["b", "number"])
    assert not store.check(["b", "a"])
    assert store.check([])


def test_a_key_that_does_not_come_is_a_store_error(store: dist.Store) -> None:
    with pytest.raises(dist.DistStoreError, match=r"wait timeout after 250ms, keys: .*absent"):
        store.wait(["absent"], SHORT)
    store.set_timeout(SHORT)
    with pytest.raises(dist.DistStoreError, match="timeout after 250ms"):
        store.get("absent")
    store.set("there", "1")
    with pytest.raises(dist.DistStoreError, match="absent"):
        store.wait(["there", "absent"])
    store.wait(["there"])
    store.wait([])


def test_the_timeout_can_be_read_and_set(store: dist.Store) -> None:
    store.set_timeout(timedelta(seconds=7))
    assert store.timeout == timedelta(seconds=7)  # type: ignore[attr-defined]


def test_extended_calls(store: dist.Store) -> None:
    assert store.has_extended_api()  # type: ignore[attr-defined]
    store.append("log", "a")  # type: ignore[attr-defined]
    store.append("log", "b")  # type: ignore[attr-defined]
    assert store.get("log") == b"ab"
    keys = [f"k{n}" for n in range(150)]
    store.multi_set(keys, [f"v{n}" for n in range(150)])  # type: ignore[attr-defined]
    assert store.multi_get(keys) == [f"v{n}".encode() for n in range(150)]
    store.wait(keys)
    assert store.check(keys)


def test_clone_and_barrier(store: dist.Store) -> None:
    other: Any = store.clone()  # type: ignore[attr-defined]
    gc.collect()
    other.set("key", "value")
    assert store.get("key") == b"value"
    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(cast(Any, side).barrier, "meet", 2, LONG) for side in (store, other)]
        assert [future.result() for future in done] == [None, None]


@pytest.mark.parametrize("store", ["etcd", "prefix over etcd"], indirect=True)
def test_a_wait_ends_when_the_key_comes(store: dist.Store) -> None:
    # Three waits and a writer at once on one store: torch's TCP store would answer one after the other.
    with ThreadPoolExecutor(3) as pool:
        waiting: list[Future[object]] = [
            pool.submit(store.get, "late"),
            pool.submit(store.wait, ["late", "later"], LONG),
            pool.submit(store.multi_get, ["later", "late"]),
        ]
        store.set("late", "1")
        store.set("later", "2")
        assert [future.result() for future in waiting] == [b"1", None, [b"2", b"1"]]


def test_no_wake_up_is_lost(etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the second look that is taken after a while, a lost wake-up is a timeout.
    monkeypatch.setattr(etcd_store, "WATCH_SPAN", 1000.0)
    ours, theirs = (new_store(etcd, "/lattice/wake/c10d/1/shared/", timeout=timedelta(seconds=30)) for _ in range(2))

    def answer() -> None:
        for n in range(60):
            theirs.get(f"question{n}")
            theirs.set(f"answer{n}", str(n))

    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(answer)
        for n in range(60):
            ours.set(f"question{n}", "?")
            assert ours.get(f"answer{n}") == str(n).encode()
        answering.result()


def test_a_wait_asks_once_and_then_listens(etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    call = Gateway.call

    def counted(self: Gateway, path: str, body: Body, deadline: float) -> Body:
        calls.append(path)
        return call(self, path, body, deadline)

    monkeypatch.setattr(Gateway, "call", counted)
    with pytest.raises(dist.DistStoreError):
        new_store(etcd, timeout=timedelta(seconds=2)).get("absent")
    assert len(calls) <= 3


def test_adds_of_many_threads_all_count(etcd: EtcdServer) -> None:
    prefix = "/lattice/many/c10d/1/shared/"
    with ThreadPoolExecutor(8) as pool:
        stores = [new_store(etcd, prefix) for _ in range(4)]
        seen = list(pool.map(lambda n: stores[n % 4].add("number", 1), range(120)))
    assert sorted(seen) == list(range(1, 121))


def test_a_lost_answer_does_not_add_twice(etcd: EtcdServer, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store(etcd)
    attempt = Gateway._try

    def deaf(self: Gateway, path: str, body: Body, deadline: float) -> Body:
        answer = attempt(self, path, body, deadline)
        monkeypatch.setattr(Gateway, "_try", attempt)
        raise StoreUnavailable(f"lost {answer}")

    for expected in (1, 2, 3):
        monkeypatch.setattr(Gateway, "_try", deaf)
        assert store.add("number", 1) == expected
    monkeypatch.setattr(Gateway, "_try", deaf)
    store.append("log", "x")
    assert (store.get("log"), store.get("number")) == (b"x", b"3")


def test_keys_go_with_the_lease_of_the_run(etcd: EtcdServer) -> None:
    lease = etcd.etcdctl("lease", "grant", "600").split()[1]
    store = new_store(etcd, "/lattice/leased/c10d/1/shared/", int(lease, 16))
    store.set("key", "value")
    store.add("number", 1)
    assert store.list_keys() == ["key", "number"]
    etcd.etcdctl("lease", "revoke", lease)
    assert store.num_keys() == 0
    assert etcd.etcdctl("get", "--prefix", "--keys-only", "/lattice/leased/") == ""


def test_stores_of_different_rounds_do_not_meet(etcd: EtcdServer) -> None:
    first, second = (new_store(etcd, f"/lattice/rounds/c10d/{n}/shared/") for n in (1, 11))
    first.set("key", "value")
    assert not second.check(["key"])
    assert (first.num_keys(), second.num_keys()) == (1, 0)


def test_torch_may_drop_the_python_half(etcd: EtcdServer) -> None:
    wrapped = dist.PrefixStore("group", new_store(etcd))
    gc.collect()
    wrapped.set("key", "value")
    assert wrapped.get("key") == b"value"
    dist._test_python_store(new_store(etcd))
