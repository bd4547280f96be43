"""What only the etcd store promises: endpoints that fail, and who is let in."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lattice.core.keyspace import CreatedAt, Put, Transaction
from lattice.core.keyvalue import MARKER
from lattice.errors import Compacted, StoreRefused, StoreUnavailable, UsageError
from lattice.stores.etcd import EtcdStore
from tests.etcd_server import EtcdCluster, EtcdServer, free_ports, running
from tests.stores.certificates import Authority
from tests.stores.collected import Collected
from tests.waiting import eventually, patience


@contextlib.contextmanager
def opened(store: EtcdStore) -> Iterator[EtcdStore]:
    try:
        yield store
    finally:
        store.close()


def put(store: EtcdStore, key: str, value: bytes = b"") -> int:
    return store.commit(Transaction((Put(key, value),))).revision


def patiently(call: Callable[[], object]) -> float:
    """Repeat a call until there is an answer, as an agent would, and tell how long that took."""
    started = time.monotonic()

    def answered() -> bool:
        try:
            call()
        except StoreUnavailable:
            return False
        return True

    eventually(answered, within=60.0)
    return time.monotonic() - started


@pytest.fixture
def cluster() -> Iterator[EtcdCluster]:
    cluster = EtcdCluster(3)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_lost_leader_costs_seconds_and_no_change(cluster: EtcdCluster, fault: str, root: str) -> None:
    at = cluster.leader()
    # The leader comes first, so that the store is connected to the member that will fail.
    order = cluster.members[at:] + cluster.members[:at]
    with opened(EtcdStore(tuple(member.endpoint for member in order), request_timeout=1.0)) as store:
        known = store.read(root, prefix=True).revision
        seen = Collected()
        store.watch(root, known, seen)
        put(store, root + "before")
        seen.wait(1)
        (order[0].kill if fault == "kill" else order[0].pause)()
        patiently(lambda: put(store, root + "after"))
        # The watch sat on the lost member and says so, once; whoever listens goes on from what it has seen.
        eventually(lambda: seen.errors)
        (error,) = seen.errors
        assert isinstance(error, StoreUnavailable)
        assert order[0].url.removeprefix("http://") in str(seen.errors[0])
        again = Collected()
        patiently(lambda: store.watch(root, seen.batches[-1].revision, again))
        again.wait(1)
        assert [change.key for change in seen.changes + again.changes][:2] == [root + "before", root + "after"]
        if fault == "pause":
            order[0].resume()


def test_a_paused_server_is_noticed_by_the_timeout(own_etcd: EtcdServer, root: str) -> None:
    with opened(EtcdStore((own_etcd.endpoint,), request_timeout=0.5)) as store:
        seen = Collected()
        store.watch(root, store.read(root).revision, seen)
        own_etcd.pause()
        with pytest.raises(StoreUnavailable, match=rf"127.0.0.1:{own_etcd.client_port}: timed out, .* 0.5s"):
            store.read(root)
        eventually(lambda: seen.errors)
        with pytest.raises(StoreUnavailable, match="timed out"):
            store.watch(root, 1, seen)
        own_etcd.resume()
        patiently(lambda: store.read(root))
        assert len(seen.items) == 1


def test_a_restarted_server_is_found_again_within_seconds(own_etcd: EtcdServer, root: str) -> None:
    with opened(EtcdStore((own_etcd.endpoint,), request_timeout=2.0)) as store:
        lease = store.grant(600)
        store.commit(Transaction((Put(root + "a", b"kept", lease),)))
        identity = store.identity()
        own_etcd.kill()
        with contextlib.suppress(StoreUnavailable):
            store.read(root)  # This one may still find the connection that was closed.
        with pytest.raises(StoreUnavailable, match=rf"127.0.0.1:{own_etcd.client_port}: connection refused"):
            store.read(root)
        own_etcd.start()
        assert patiently(lambda: store.read(root)) < 10
        assert store.read(root + "a").items[0].value == b"kept"
        assert store.remaining(lease) > 0
        assert store.identity() == identity


def test_a_wiped_server_has_another_identity_and_no_leases(own_etcd: EtcdServer, root: str) -> None:
    with opened(EtcdStore((own_etcd.endpoint,), request_timeout=2.0)) as store:
        lease, identity = store.grant(600), store.identity()
        known = put(store, root + "a")
        own_etcd.restart(wipe=True)
        patiently(lambda: store.read(root))
        assert store.keep_alive(lease) == 0
        # Other clients may have filled it beyond the revision that was known: that must not hide the wipe.
        with opened(EtcdStore((own_etcd.endpoint,), request_timeout=10.0)) as other:
            assert store.read(root, prefix=True).items == ()
            while put(other, root + "b") <= known:
                pass
            found = store.commit(Transaction((), read=root))
            assert found.revision > known
            assert found.identity.split(".")[0] == identity.split(".")[0], "etcd's own id comes from its options"
            assert found.identity != identity
            assert found.identity == store.identity() == other.identity()


def test_clients_that_come_together_agree_on_the_identity(own_etcd: EtcdServer, root: str) -> None:
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(opened(EtcdStore((own_etcd.endpoint,), request_timeout=10.0))) for _ in range(8)]
        with ThreadPoolExecutor(len(stores)) as pool:
            first = set(pool.map(lambda store: store.identity(), stores))
        assert len(first) == 1
        # The marker needs no request of its own and no revision: it is written with the first transaction that reads.
        own_etcd.restart(wipe=True)
        patiently(lambda: stores[0].read(root))
        greeting = Transaction((Put(root + "a", b""),), (CreatedAt(root + "a", 0),), read=root)
        commit = stores[0].commit(greeting)
        (marker,) = stores[0].read(MARKER).items
        assert marker.create_revision == commit.revision == 2 and marker.lease == 0
        again = stores[1].commit(greeting)
        assert not again.succeeded and again.identity == commit.identity not in first
        assert again.revision == commit.revision and again.items == commit.items


def test_endpoints_take_turns(etcd: EtcdServer, root: str) -> None:
    nobody = [("127.0.0.1", port) for port in free_ports(2)]
    with opened(EtcdStore((*nobody, etcd.endpoint))) as store:
        for _, port in nobody:
            with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}: connection refused"):
                store.read(root)
        for _ in range(3):
            store.read(root)


def test_a_name_that_does_not_resolve_is_named() -> None:
    with (
        opened(EtcdStore((("nosuch.invalid", 2379),), request_timeout=10.0)) as store,
        pytest.raises(StoreUnavailable, match=r"nosuch\.invalid.* does not resolve"),
    ):
        store.read("a")


def test_a_compacted_watch_is_told_so(etcd: EtcdServer, root: str) -> None:
    with opened(EtcdStore((etcd.endpoint,), request_timeout=10.0)) as store:
        first = put(store, root + "a")
        last = [put(store, root + "a") for _ in range(5)][-1]
        etcd.etcdctl("compact", str(last))
        seen = Collected()
        store.watch(root, first, seen)
        eventually(lambda: seen.items)
        assert [type(item) for item in seen.items] == [Compacted]
        # The connection is fine.
        other = Collected()
        store.watch(root, last, other)
        put(store, root + "b")
        other.wait(1)


def test_closing_leaves_no_thread(etcd: EtcdServer, root: str) -> None:
    before = set(threading.enumerate())
    store = EtcdStore((etcd.endpoint,), request_timeout=10.0)
    for _ in range(3):
        store.watch(root, 1, Collected())
    store.close()
    eventually(lambda: set(threading.enumerate()) <= before)


FORKS = """
import os, sys
from lattice.stores.etcd import EtcdStore

assert "GRPC_ENABLE_FORK_SUPPORT" not in os.environ, "workers would inherit it"
store = EtcdStore((("127.0.0.1", int(sys.argv[1])),))
store.watch("/forks/", store.read("/forks/", prefix=True).revision, lambda *_: None)
for _ in range(50):
    child = os.fork()
    if not child:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
store.close()
"""


def test_grpc_does_nothing_when_a_process_forks_beside_a_watch(etcd: EtcdServer) -> None:
    """It would stop its threads and start them again on both sides: a simulator crashed or stood still there."""
    ended = subprocess.run(
        [sys.executable, "-c", FORKS, str(etcd.endpoint[1])],
        check=False,
        env={**os.environ, "GRPC_VERBOSITY": "info"},
        capture_output=True,
        text=True,
        timeout=patience(60),
    )
    assert ended.returncode == 0 and "fork" not in ended.stderr, ended.stderr


def test_users_and_passwords(own_etcd: EtcdServer) -> None:
    own_etcd.enable_auth(("trainer", "s3cret", "/lattice/"))

    def store(user: str, password: str) -> EtcdStore:
        return EtcdStore((own_etcd.endpoint,), user, password, request_timeout=10.0)

    with opened(store("trainer", "s3cret")) as good:
        put(good, "/lattice/run/a")
        seen = Collected()
        good.watch("/lattice/run/", 1, seen)
        seen.wait(1)
        good.keep_alive(good.grant(10))
        assert good.identity()
        with pytest.raises(StoreRefused, match=r"permission denied.*--rdzv_conf user="):
            put(good, "/elsewhere")
        with pytest.raises(StoreRefused, match="permission denied"):
            good.watch("/elsewhere", 1, seen)
        # etcd forgets all logins when it restarts: the next call logs in again by itself, and so does a watch.
        own_etcd.restart()
        patiently(lambda: put(good, "/lattice/run/b"))
        again = Collected()
        good.watch("/lattice/run/", 1, again)
        again.wait(2)
        own_etcd.restart()
        third = Collected()
        patiently(lambda: good.watch("/lattice/run/", 1, third))
        third.wait(2)
    for user, password in (("trainer", "wrong"), ("nobody", "s3cret")):
        with (
            opened(store(user, password)) as bad,
            pytest.raises(StoreRefused, match=r"authentication failed.*LATTICE_RDZV_PASSWORD"),
        ):
            bad.read("/lattice/a")
    with opened(store("", "")) as anonymous, pytest.raises(StoreRefused, match=r"--rdzv_conf user="):
        anonymous.read("/lattice/a")


def logins(server: EtcdServer) -> float:
    """Tell how often somebody logged in, by etcd's own count."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=patience(30)) as answer:
        lines = answer.read().decode().splitlines()
    counted = [line for line in lines if line.startswith("grpc_server_handled_total") and '"Authenticate"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in counted)


def test_who_got_no_answer_logs_in_anew(own_etcd: EtcdServer) -> None:
    # An etcd that is empty in the place of another one, as on an instance that was replaced, does not refuse a login
    # with that one: it waits until its log has come so far.
    own_etcd.enable_auth()
    with opened(EtcdStore((own_etcd.endpoint,), "root", "root", request_timeout=2.0)) as store:
        patiently(lambda: store.read("/lattice/a"))
        before = logins(own_etcd)
        own_etcd.pause()
        with pytest.raises(StoreUnavailable, match="timed out"):
            store.read("/lattice/a")
        own_etcd.resume()
        patiently(lambda: store.read("/lattice/a"))
        assert logins(own_etcd) > before


def test_a_user_for_an_etcd_without_users_does_no_harm(etcd: EtcdServer, root: str) -> None:
    with opened(EtcdStore((etcd.endpoint,), "trainer", "s3cret", request_timeout=10.0)) as store:
        assert store.commit(Transaction((Put(root + "a", b""),), (CreatedAt(root + "a", 0),))).succeeded


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    folder = tmp_path_factory.mktemp("certificates")
    return Authority(folder), Authority(folder, "other")


@pytest.fixture(scope="module")
def tls_etcd(authority: tuple[Authority, Authority]) -> Iterator[EtcdServer]:
    cert, key = authority[0].sign("server")
    cacert = authority[0].certificate
    options = ("--cert-file", cert, "--key-file", key, "--trusted-ca-file", cacert, "--client-cert-auth")
    with running(EtcdServer(scheme="https", options=options)) as server:
        yield server


def test_tls_with_a_client_certificate(tls_etcd: EtcdServer, authority: tuple[Authority, Authority], root: str) -> None:
    ours, other = authority
    cert, key = ours.sign("client")
    for host in ("127.0.0.1", "localhost"):
        endpoint = (host, tls_etcd.client_port)
        with opened(EtcdStore((endpoint,), "", "", ours.certificate, cert, key, request_timeout=10.0)) as store:
            put(store, root + host)
            seen = Collected()
            store.watch(root, 1, seen)
            seen.wait(1)
    refused = [
        ((other.certificate, cert, key), r"certificate cannot be trusted.*cacert=FILE"),
        ((ours.certificate, "", ""), r"does not accept our TLS certificate.*cert=FILE,key=FILE"),
        ((ours.certificate, *other.sign("stranger")), r"does not accept our TLS certificate"),
    ]
    for files, message in refused:
        with (
            opened(EtcdStore((tls_etcd.endpoint,), "", "", *files, request_timeout=10.0)) as store,
            pytest.raises(StoreRefused, match=message),
        ):
            store.read(root)


def test_the_name_in_a_certificate_need_not_be_the_address(tmp_path: Path, root: str) -> None:
    cert, key = Authority(tmp_path, "signs-names").sign("named", "etcd.of.a.run")
    cacert = str(tmp_path / "signs-names.crt")
    with running(EtcdServer(scheme="https", options=["--cert-file", cert, "--key-file", key])) as server:
        for name, let_in in (("etcd.of.a.run", True), ("", False), ("etcd.of.another", False)):
            with opened(EtcdStore((server.endpoint,), cacert=cacert, server_name=name, request_timeout=10.0)) as store:
                if let_in:
                    assert put(store, root + "key")
                else:
                    with pytest.raises((StoreRefused, StoreUnavailable)):
                        put(store, root + "key")


def test_tls_on_one_side_only(tls_etcd: EtcdServer, etcd: EtcdServer, authority: tuple[Authority, Authority]) -> None:
    with opened(EtcdStore((tls_etcd.endpoint,))) as store, pytest.raises(StoreUnavailable, match="TLS"):
        store.read("a")
    with (
        opened(EtcdStore((etcd.endpoint,), cacert=authority[0].certificate)) as store,
        pytest.raises(StoreUnavailable, match="TLS handshake failed"),
    ):
        store.read("a")


def test_files_are_checked_before_anything_is_sent(authority: tuple[Authority, Authority], tmp_path: Path) -> None:
    cert, _ = authority[0].sign("client")
    _, stranger = authority[1].sign("stranger")
    endpoints = (("127.0.0.1", 1),)
    with pytest.raises(UsageError, match=r"cannot read .*missing: No such file.*cacert=FILE"):
        EtcdStore(endpoints, cacert=str(tmp_path / "missing"))
    with pytest.raises(UsageError, match="no pair of certificate and key"):
        EtcdStore(endpoints, cert=cert, key=stranger)
    with pytest.raises(UsageError, match="go together"):
        EtcdStore(endpoints, cert=cert)
    with pytest.raises(UsageError, match="--rdzv_endpoint"):
        EtcdStore(())
