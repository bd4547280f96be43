"""What only the in-process store promises."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from lattice.core.keyspace import Batch, Put, Transaction
from lattice.errors import Compacted, LatticeError, StoreUnavailable
from lattice.stores.memory import MemoryStore
from tests.stores.collected import Collected
from tests.waiting import eventually, patience


def put(store: MemoryStore, key: str, lease: int = 0) -> None:
    store.commit(Transaction((Put(key, b"", lease),)))


def test_a_watch_is_told_before_the_commit_returns() -> None:
    store = MemoryStore()
    seen = Collected()
    store.watch("a", 1, seen)
    put(store, "a")
    assert [change.key for change in seen.changes] == ["a"]
    store.close()


def test_two_stores_are_two() -> None:
    first, second = MemoryStore(), MemoryStore()
    put(first, "a")
    assert second.read("a").items == ()
    assert first.identity() != second.identity()
    first.close()
    second.close()


def test_a_watch_from_a_forgotten_revision_is_told_so() -> None:
    store = MemoryStore(history=3)
    for _ in range(5):
        put(store, "a")
    seen = Collected()
    store.watch("a", 2, seen)
    assert [type(error) for error in seen.errors] == [Compacted]
    put(store, "a")
    assert len(seen.items) == 1
    store.close()


def test_a_sink_may_write() -> None:
    store = MemoryStore()
    order: list[str] = []

    def sink(item: Batch | LatticeError) -> None:
        assert isinstance(item, Batch)
        order.append(item.changes[0].key)
        if len(order) < 5:
            put(store, f"a{len(order)}")
            order.append("written")

    store.watch("a", 1, sink)
    put(store, "a0")
    assert order == ["a0", "written", "a1", "written", "a3"]
    store.close()


def test_cancel_waits_for_a_sink_that_runs() -> None:
    store = MemoryStore()
    running, release = threading.Event(), threading.Event()
    log: list[str] = []

    def sink(item: object) -> None:
        running.set()
        release.wait(patience(30))
        log.append("sink")

    watch = store.watch("a", 1, sink)
    writer = threading.Thread(target=put, args=(store, "a"))
    writer.start()
    assert running.wait(patience(30))

    def cancel() -> None:
        watch.cancel()
        log.append("cancelled")

    canceller = threading.Thread(target=cancel)
    canceller.start()
    put(store, "a")  # The store is not blocked by a sink that is.
    assert canceller.is_alive()
    release.set()
    canceller.join()
    writer.join()
    assert log == ["sink", "cancelled"]
    store.close()


def test_time_in_which_the_process_was_stopped_counts_against_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("lattice.stores.memory.time", SimpleNamespace(monotonic=lambda: now[0]))
    store = MemoryStore()
    lease = store.grant(5)
    # Nobody looks at the clock for a minute: the timer's thread waits in real time.
    now[0] += 60
    assert store.keep_alive(lease) == 5
    now[0] += 1.5
    assert store.remaining(lease) == 3.5
    monkeypatch.undo()
    store.close()


def test_a_lease_lapses_without_anybody_calling() -> None:
    store = MemoryStore()
    seen = Collected()
    store.watch("a", 1, seen)
    started = time.monotonic()
    put(store, "a", store.grant(0.2))
    seen.wait(2)
    assert time.monotonic() - started >= 0.2
    assert seen.items[-1] == Batch(seen.batches[-1].changes, 3)
    store.close()


def test_closing_ends_the_thread_and_is_final() -> None:
    before = threading.active_count()
    store = MemoryStore()
    store.grant(100)
    store.close()
    store.close()
    eventually(lambda: threading.active_count() == before)
    with pytest.raises(StoreUnavailable, match="closed"):
        store.grant(1)
