"""One suite for every store: whoever passes it can carry a rendezvous."""

from __future__ import annotations

import threading
from itertools import count

import pytest

from lattice.core.keyspace import (
    Batch,
    CreatedAt,
    Delete,
    KeyValue,
    ModifiedAt,
    Put,
    Removed,
    Transaction,
)
from lattice.core.keyvalue import MARKER
from lattice.errors import StoreRefused, StoreUnavailable
from lattice.stores import Store
from tests.stores.collected import Collected
from tests.waiting import eventually, patience

lease_ids = count(0x10_0000)


def put(store: Store, key: str, value: bytes = b"", lease: int = 0) -> int:
    commit = store.commit(Transaction((Put(key, value, lease),)))
    assert commit.succeeded
    return commit.revision


def get(store: Store, key: str) -> KeyValue:
    return store.read(key).items[0]


def names(store: Store, prefix: str) -> list[str]:
    return [item.key.removeprefix(prefix) for item in store.read(prefix, prefix=True).items]


def test_what_was_put_can_be_read(store: Store, root: str) -> None:
    revision = put(store, root + "a", b"\x00\xff")
    snapshot = store.read(root + "a")
    assert snapshot.items == (KeyValue(root + "a", b"\x00\xff", revision, revision),)
    assert snapshot.revision >= revision


def test_an_absent_key_reads_as_nothing(store: Store, root: str) -> None:
    assert store.read(root + "a").items == ()
    assert store.read(root, prefix=True).items == ()


def test_a_prefix_is_read_in_key_order_and_nothing_else(store: Store, root: str) -> None:
    for name in ("b/2", "a", "b/10", "b", "ü", "c"):
        put(store, root + name)
    assert names(store, root) == ["a", "b", "b/10", "b/2", "c", "ü"]
    assert names(store, root + "b/") == ["10", "2"]
    assert [item.key for item in store.read(root + "b").items] == [root + "b"]


def test_every_write_has_its_own_revision(store: Store, root: str) -> None:
    first = put(store, root + "a")
    second = put(store, root + "a")
    assert second > first
    item = get(store, root + "a")
    assert (item.create_revision, item.mod_revision) == (first, second)


def test_a_key_made_anew_has_a_new_create_revision(store: Store, root: str) -> None:
    first = put(store, root + "a")
    store.commit(Transaction((Delete(root + "a"),)))
    assert get_created(store, root) > first


def get_created(store: Store, root: str) -> int:
    put(store, root + "a")
    return get(store, root + "a").create_revision


def test_all_operations_of_a_transaction_share_a_revision(store: Store, root: str) -> None:
    put(store, root + "old/1")
    put(store, root + "old/2")
    operations = (Put(root + "a", b"1"), Put(root + "b", b"2"), Delete(root + "old/", prefix=True))
    commit = store.commit(Transaction(operations))
    assert commit.succeeded
    assert [(item.key, item.mod_revision) for item in store.read(root, prefix=True).items] == [
        (root + "a", commit.revision),
        (root + "b", commit.revision),
    ]


@pytest.mark.parametrize("guard", [CreatedAt, ModifiedAt])
def test_revision_zero_means_absent(store: Store, root: str, guard: type[CreatedAt | ModifiedAt]) -> None:
    absent = Transaction((Put(root + "a", b"mine"),), (guard(root + "a", 0),))
    assert store.commit(absent).succeeded
    again = store.commit(Transaction((Put(root + "a", b"theirs"),), (guard(root + "a", 0),)))
    assert not again.succeeded
    assert get(store, root + "a").value == b"mine"


def test_guards_tell_created_from_modified(store: Store, root: str) -> None:
    created = put(store, root + "a")
    modified = put(store, root + "a")
    for guard, holds in (
        (CreatedAt(root + "a", created), True),
        (CreatedAt(root + "a", modified), False),
        (ModifiedAt(root + "a", created), False),
        (ModifiedAt(root + "a", modified), True),
    ):
        assert store.commit(Transaction((Put(root + "b", b""),), (guard,))).succeeded is holds, guard


def test_a_transaction_reads_in_the_same_moment_whether_its_guards_hold_or_not(store: Store, root: str) -> None:
    put(store, root + "in/a", b"old")
    put(store, root + "out", b"")
    operations = (Put(root + "in/a", b"new"), Put(root + "in/b", b""))
    commit = store.commit(Transaction(operations, (CreatedAt(root + "in/b", 0),), read=root + "in/"))
    assert commit.succeeded and commit.items == store.read(root + "in/", prefix=True).items
    assert [item.mod_revision for item in commit.items] == [commit.revision] * 2
    refused = store.commit(Transaction((Put(root + "in/c", b""),), (CreatedAt(root + "in/b", 0),), read=root + "in/"))
    assert not refused.succeeded and refused.items == commit.items
    assert refused.identity == commit.identity == store.identity()
    assert store.commit(Transaction((Put(root + "out", b""),))).items == ()


def test_a_transaction_tells_its_own_revision_however_many_there_are(store: Store, root: str) -> None:
    told: dict[str, int] = {}

    def write(name: str) -> None:
        for number in range(10):
            told[f"{root}{name}/{number}"] = put(store, f"{root}{name}/{number}")

    threads = [threading.Thread(target=write, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == {item.key: item.create_revision for item in store.read(root, prefix=True).items}
    assert len(set(told.values())) == 80


def test_one_failed_guard_stops_everything(store: Store, root: str) -> None:
    revision = put(store, root + "a")
    guards = (ModifiedAt(root + "a", revision), CreatedAt(root + "b", 7))
    refused = store.commit(Transaction((Put(root + "c", b""), Delete(root + "a")), guards))
    assert not refused.succeeded
    assert names(store, root) == ["a"]


def test_deleting_what_is_not_there_changes_nothing(store: Store, root: str) -> None:
    revision = put(store, root + "a")
    seen = Collected()
    watch = store.watch(root, revision, seen)
    assert store.commit(Transaction((Delete(root + "b"), Delete(root + "c/", prefix=True)))).succeeded
    put(store, root + "end")
    seen.wait(1)
    assert seen.names() == ["end"]
    watch.cancel()


def test_an_empty_transaction_tells_whether_guards_hold(store: Store, root: str) -> None:
    revision = put(store, root + "a")
    assert store.commit(Transaction((), (ModifiedAt(root + "a", revision),))).succeeded
    assert not store.commit(Transaction((), (ModifiedAt(root + "a", revision + 1),))).succeeded


@pytest.mark.parametrize(
    "names",
    [(Put("a", b""), Put("a", b"")), (Put("a", b""), Delete("a")), (Delete("", prefix=True), Put("a", b""))],
)
def test_a_key_cannot_change_twice(store: Store, root: str, names: tuple[Put | Delete, ...]) -> None:
    operations = tuple(
        Put(root + operation.key, b"") if isinstance(operation, Put) else Delete(root + operation.key, operation.prefix)
        for operation in names
    )
    with pytest.raises(StoreRefused):
        store.commit(Transaction(operations))


def test_128_operations_are_fine_and_129_are_not(store: Store, root: str) -> None:
    operations = tuple(Put(f"{root}{number:03}", b"") for number in range(129))
    assert store.commit(Transaction(operations[:128])).succeeded
    assert len(names(store, root)) == 128
    assert len(store.commit(Transaction(operations[:125], read=root)).items) == 128
    guards = tuple(CreatedAt(f"{root}absent/{number}", 0) for number in range(128))
    assert store.commit(Transaction((), guards)).succeeded
    assert store.commit(Transaction((), guards[:127], read=root)).succeeded
    for refused in (
        Transaction(operations),
        Transaction(operations[:126], read=root),
        Transaction((), guards, read=root),
    ):
        with pytest.raises(StoreRefused, match="128"):
            store.commit(refused)


def test_large_values_pass_through(store: Store, root: str) -> None:
    seen = Collected()
    watch = store.watch(root, store.read(root).revision, seen)
    value = bytes(range(256)) * 800
    put(store, root + "a", value)
    put(store, root + "b", value)
    assert [item.value for item in store.read(root, prefix=True).items] == [value, value]
    assert [change.value for change in seen.wait(2) if isinstance(change, KeyValue)] == [value, value]
    watch.cancel()


def test_identity_stays(store: Store) -> None:
    assert store.identity() == store.identity() != ""


def test_a_transaction_that_only_reads_says_of_which_data_that_is(store: Store, root: str) -> None:
    put(store, root + "a")
    found = store.commit(Transaction((), read=root))
    assert found.succeeded and found.items == store.read(root, prefix=True).items
    assert found.identity == store.identity()


def test_a_transaction_that_reads_cannot_remove_the_name_of_the_data(store: Store) -> None:
    for removal in (Delete(MARKER), Delete("/lattice/", prefix=True)):
        with pytest.raises(StoreRefused, match="writes and deletes"):
            store.commit(Transaction((removal,), read="/lattice/"))


def test_a_lapsed_lease_takes_its_keys_with_it_at_one_revision(store: Store, root: str) -> None:
    lease = store.grant(1)
    revision = put(store, root + "b", lease=lease)
    put(store, root + "a", lease=lease)
    put(store, root + "stays")
    assert get(store, root + "b").lease == lease
    seen = Collected()
    watch = store.watch(root, revision, seen)
    seen.wait(4)
    assert seen.names() == ["a", "stays", "-a", "-b"]
    assert seen.changes[2:] == [Removed(root + key, seen.batches[-1].revision) for key in "ab"]
    assert names(store, root) == ["stays"]
    eventually(lambda: store.remaining(lease) == 0)
    assert store.keep_alive(lease) == 0
    watch.cancel()


def test_revoking_a_lease_removes_its_keys_at_once(store: Store, root: str) -> None:
    lease = store.grant(600)
    assert 500 < store.remaining(lease) <= 600
    put(store, root + "a", lease=lease)
    store.revoke(lease)
    assert names(store, root) == []
    assert store.remaining(lease) == 0
    store.revoke(lease)


def test_a_lease_that_is_kept_alive_lives(store: Store, root: str) -> None:
    kept, lapsing = store.grant(2), store.grant(2)
    put(store, root + "kept", lease=kept)
    put(store, root + "lapsing", lease=lapsing)

    def only_one_is_left() -> bool:
        assert store.keep_alive(kept) > 0
        return names(store, root) == ["kept"]

    eventually(only_one_is_left)


def test_a_lease_may_be_given_its_id_and_is_kept_if_it_exists(store: Store, root: str) -> None:
    wanted = next(lease_ids)
    assert store.grant(600, wanted) == wanted
    put(store, root + "a", lease=wanted)
    assert store.grant(10, wanted) == wanted
    assert store.remaining(wanted) > 500
    assert names(store, root) == ["a"]
    store.revoke(wanted)


def test_chosen_leases_differ(store: Store) -> None:
    leases = {store.grant(60) for _ in range(10)}
    assert len(leases) == 10
    assert 0 not in leases
    for lease in leases:
        store.revoke(lease)


def test_a_put_moves_a_key_to_its_new_lease(store: Store, root: str) -> None:
    old, new = store.grant(600), store.grant(600)
    put(store, root + "moved", lease=old)
    put(store, root + "freed", lease=old)
    put(store, root + "moved", lease=new)
    put(store, root + "freed")
    store.revoke(old)
    assert names(store, root) == ["freed", "moved"]
    store.revoke(new)
    assert names(store, root) == ["freed"]


def test_a_lease_that_does_not_exist_fails_the_write(store: Store, root: str) -> None:
    transaction = Transaction((Put(root + "a", b""), Put(root + "b", b"", 0x77)))
    with pytest.raises(StoreUnavailable, match="lease"):
        store.commit(transaction)
    assert names(store, root) == []
    guarded = Transaction(transaction.operations, (CreatedAt(root + "a", 5),))
    assert not store.commit(guarded).succeeded


def test_a_watch_begins_in_the_past_and_goes_on(store: Store, root: str) -> None:
    before = put(store, root + "1")
    put(store, root + "2")
    put(store, root + "3")
    seen = Collected()
    watch = store.watch(root, before, seen)
    put(store, root + "4")
    store.commit(Transaction((Delete(root + "2"),)))
    seen.wait(4)
    assert seen.names() == ["2", "3", "4", "-2"]
    revisions = [batch.revision for batch in seen.batches]
    assert revisions == sorted(set(revisions))
    watch.cancel()


def test_a_watch_sees_the_whole_history_of_a_key(store: Store, root: str) -> None:
    before = store.read(root).revision
    written = [put(store, root + "a", b"%d" % number) for number in range(5)]
    seen = Collected()
    watch = store.watch(root, before, seen)
    seen.wait(5)
    assert seen.changes == [
        KeyValue(root + "a", b"%d" % number, written[0], revision) for number, revision in enumerate(written)
    ]
    watch.cancel()


def test_changes_of_one_revision_come_in_one_batch(store: Store, root: str) -> None:
    seen = Collected()
    watch = store.watch(root, store.read(root).revision, seen)
    commits = [
        store.commit(Transaction(tuple(Put(f"{root}{turn}.{number}", b"") for number in range(100))))
        for turn in range(3)
    ]
    seen.wait(300)
    for commit in commits:
        holding = [
            batch
            for batch in seen.batches
            if any(isinstance(change, KeyValue) and change.mod_revision == commit.revision for change in batch.changes)
        ]
        assert len(holding) == 1
    watch.cancel()


def test_a_watch_sees_only_its_prefix(store: Store, root: str) -> None:
    seen = Collected()
    watch = store.watch(root + "in/", store.read(root).revision, seen)
    store.commit(Transaction((Put(root + "in/a", b""), Put(root + "out/b", b""), Put(root + "in", b""))))
    put(store, root + "out/c")
    put(store, root + "in/end")
    seen.wait(2)
    assert seen.names() == ["a", "end"]
    watch.cancel()


def test_a_watch_from_the_future_waits_for_it(store: Store, root: str) -> None:
    now = put(store, root + "0")
    seen = Collected()
    watch = store.watch(root, now + 2, seen)
    written = {f"{number}": put(store, f"{root}{number}") for number in range(1, 5)}
    eventually(lambda: "4" in seen.names())
    # The store may be shared, so others may take revisions too.
    assert seen.names() == [name for name, revision in written.items() if revision > now + 2]
    watch.cancel()


def test_a_cancelled_watch_is_silent(store: Store, root: str) -> None:
    cancelled, kept = Collected(), Collected()
    now = store.read(root).revision
    first, second = store.watch(root, now, cancelled), store.watch(root, now, kept)
    put(store, root + "a")
    kept.wait(1)
    cancelled.wait(1)
    first.cancel()
    put(store, root + "b")
    kept.wait(2)
    first.cancel()
    assert cancelled.names() == ["a"]
    assert not cancelled.errors
    second.cancel()


def test_a_sink_may_cancel_its_own_watch(store: Store, root: str) -> None:
    seen = Collected()
    ready = threading.Event()

    def sink(item: object) -> None:
        ready.wait(patience(30))
        assert isinstance(item, Batch)
        seen(item)
        watch.cancel()

    now = store.read(root).revision
    watch = store.watch(root, now, sink)
    ready.set()
    put(store, root + "a")
    seen.wait(1)
    other = Collected()
    second = store.watch(root, now, other)
    put(store, root + "b")
    other.wait(2)
    assert seen.names() == ["a"]
    second.cancel()


def test_many_watchers_all_see_everything_in_order(store: Store, root: str) -> None:
    sinks = [Collected() for _ in range(30)]
    now = store.read(root).revision
    watches = [store.watch(root, now, sink) for sink in sinks]
    for number in range(40):
        put(store, f"{root}{number:02}")
    for sink in sinks:
        sink.wait(40)
        assert sink.names() == [f"{number:02}" for number in range(40)]
    for watch in watches:
        watch.cancel()


def test_counting_with_compare_and_set_loses_nothing(store: Store, root: str) -> None:
    key = root + "counter"
    put(store, key, b"0")

    def count_up() -> None:
        done = 0
        while done < 10:
            item = get(store, key)
            value = b"%d" % (int(item.value) + 1)
            guarded = Transaction((Put(key, value),), (ModifiedAt(key, item.mod_revision),))
            done += store.commit(guarded).succeeded

    seen = Collected()
    watch = store.watch(root, store.read(root).revision, seen)
    threads = [threading.Thread(target=count_up) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert get(store, key).value == b"80"
    values = [change.value for change in seen.wait(80) if isinstance(change, KeyValue)]
    assert values == [b"%d" % number for number in range(1, 81)]
    watch.cancel()


def test_nothing_works_after_close(store: Store, root: str) -> None:
    seen = Collected()
    store.watch(root, store.read(root).revision, seen)
    store.grant(2)
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.read(root)
    assert not seen.items
