"""What may happen to etcd in the middle of a training run, and who is let in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch.distributed as dist

from lattice.errors import StoreUnavailable
from lattice.torch.etcd_store import EtcdStore
from lattice.torch.gateway import Access, Body, Gateway
from tests.etcd_server import EtcdCluster, EtcdServer, free_ports, running
from tests.stores.certificates import Authority
from tests.waiting import eventually

PREFIX = "/lattice/run/c10d/1/shared/"
LONG = timedelta(seconds=60)


@pytest.fixture(autouse=True)
def close_stores() -> Iterator[None]:
    yield
    for store in EtcdStore._alive:
        store.close()


def connect(access: Access, timeout: timedelta = LONG) -> EtcdStore:
    return EtcdStore(Gateway(access, request_timeout=1.0), PREFIX, timeout=timeout)


def test_etcd_restarts_between_calls_and_during_a_wait(own_etcd: EtcdServer) -> None:
    store = connect(Access((own_etcd.endpoint,)))
    store.set("before", "1")
    assert store.add("number", 1) == 1
    own_etcd.restart()
    assert store.get("before") == b"1"
    assert store.add("number", 1) == 2
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(store.get, "late")
        own_etcd.kill()
        setting = pool.submit(store.set, "late", "2")
        own_etcd.start()
        assert (waiting.result(), setting.result()) == (b"2", None)


def test_an_etcd_that_is_away_is_a_network_error_after_the_timeout() -> None:
    store = connect(Access((("127.0.0.1", free_ports(1)[0]),)), timedelta(seconds=1.5))
    begun = time.monotonic()
    with pytest.raises(dist.DistNetworkError, match=r"etcd at 127\.0\.0\.1:\d+ did not answer in time"):
        store.set("key", "value")
    assert time.monotonic() - begun >= 1


def test_the_next_endpoint_is_asked_when_one_is_dead_or_hung() -> None:
    cluster = EtcdCluster(3)
    with ExitStack() as stack:
        stack.callback(cluster.stop)
        cluster.start()
        store = connect(Access(cluster.endpoints))
        store.set("key", "1")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(store.get, "late")
            hung = cluster.members[0]
            hung.pause()
            stack.callback(hung.resume)
            assert store.get("key") == b"1"
            store.set("late", "2")
            assert waiting.result() == b"2"
        hung.resume()
        cluster.members[1].kill()
        assert [store.add("number", 1) for _ in range(3)] == [1, 2, 3]
        stack.pop_all()
        cluster.stop()


def test_a_wiped_etcd_begins_anew(own_etcd: EtcdServer) -> None:
    store = connect(Access((own_etcd.endpoint,)))
    assert [store.add("number", 1) for _ in range(3)] == [1, 2, 3]
    own_etcd.restart(wipe=True)
    assert store.add("number", 1) == 1


def test_a_lease_that_is_made_again_is_waited_for(own_etcd: EtcdServer) -> None:
    store = EtcdStore(Gateway(Access((own_etcd.endpoint,))), PREFIX, lease=77, timeout=LONG)
    with ThreadPoolExecutor(1) as pool:
        setting = pool.submit(store.set, "key", "value")
        gateway = Gateway(Access((own_etcd.endpoint,)))
        gateway.call("/v3/lease/grant", {"TTL": "60", "ID": "77"}, time.monotonic() + 30)
        assert setting.result() is None
        gateway.close()


def test_tls_with_client_certificates(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    cert, key = authority.sign("server")
    options = ["--cert-file", cert, "--key-file", key, "--trusted-ca-file", authority.certificate, "--client-cert-auth"]
    files = {"cacert": authority.certificate, "cert": cert, "key": key}
    with running(EtcdServer(scheme="https", options=options)) as server:
        endpoints = (server.endpoint,)
        store = connect(Access(endpoints, **files))
        store.set("key", "value")
        assert store.get("key") == b"value"
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(store.get, "late")
            store.set("late", "1")
            assert waiting.result() == b"1"
        for wrong, said in (
            ({"cacert": stranger.certificate, "cert": cert, "key": key}, "no TLS connection.*verify failed"),
            ({"cacert": authority.certificate}, "no TLS connection"),
        ):
            with pytest.raises(dist.DistStoreError, match=said):
                connect(Access(endpoints, **wrong), timedelta(seconds=20)).get("key")
        # Without TLS the server hangs up, as one that restarts does: only the timeout tells them apart.
        with pytest.raises(dist.DistNetworkError, match=r"closed connection|reset by peer"):
            connect(Access(endpoints), timedelta(seconds=1)).get("key")


def test_the_error_names_the_failure_before_the_try_that_the_deadline_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reasons = iter([ConnectionResetError("it hung up"), TimeoutError("timed out")])

    def fail(self: Gateway, path: str, body: Body, deadline: float) -> Body:
        error = next(reasons, TimeoutError("timed out"))
        raise StoreUnavailable(str(error)) from error

    monkeypatch.setattr(Gateway, "_try", fail)
    with pytest.raises(StoreUnavailable, match=r"did not answer in time: it hung up"):
        Gateway(Access((("127.0.0.1", 1),))).call("/v3/kv/range", {}, time.monotonic() + 0.2)


def test_an_etcd_that_moves_is_found_by_the_file_and_known_by_its_name(tmp_path: Path) -> None:
    authority, file = Authority(tmp_path), tmp_path / "endpoints"
    cert, key = authority.sign("server", "etcd.of.a.run")
    options = ["--cert-file", cert, "--key-file", key]
    access = Access((), cacert=authority.certificate, server_name="etcd.of.a.run", endpoints_file=str(file))
    store = connect(access)
    with ThreadPoolExecutor(1) as pool:
        setting = pool.submit(store.set, "key", "1")  # waits for somebody who writes the file
        for value in (b"1", b"2"):
            with running(EtcdServer(scheme="https", options=options)) as server:
                file.write_text(f"127.0.0.1:{server.client_port}\n")
                setting.result()
                assert store.get("key") == value
            setting = pool.submit(store.set, "key", "2")
        with (
            pytest.raises(dist.DistStoreError, match="no TLS connection"),
            running(EtcdServer(scheme="https", options=options)) as server,
        ):
            file.write_text(f"127.0.0.1:{server.client_port}\n")
            setting.result()
            connect(replace(access, server_name="")).get("key")


def test_user_and_password(own_etcd: EtcdServer) -> None:
    own_etcd.enable_auth(("trainer", "secret", "/lattice/"))
    endpoints = (own_etcd.endpoint,)
    store = connect(Access(endpoints, user="trainer", password="secret"))
    store.set("key", "value")
    assert store.add("number", 1) == 1
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.get, "late")
        store.set("late", "1")
        assert waiting.result() == b"1"
    # Tokens do not outlive the server that gave them.
    own_etcd.restart()
    assert store.get("key") == b"value"
    for access, said in (
        (Access(endpoints, user="trainer", password="wrong"), "authentication failed"),
        (Access(endpoints), "user name is empty"),
    ):
        with pytest.raises(dist.DistStoreError, match=said):
            connect(access, timedelta(seconds=20)).get("key")
    outside = EtcdStore(Gateway(Access(endpoints, user="trainer", password="secret")), "/elsewhere/")
    with pytest.raises(dist.DistStoreError, match="permission denied"):
        outside.get("key")


def test_something_else_at_the_address_is_named() -> None:
    # etcd's peer port speaks HTTP, but not this.
    ports = free_ports(2)
    with running(EtcdServer(ports=(ports[0], ports[1]))):
        store = connect(Access((("127.0.0.1", ports[1]),)), timedelta(seconds=20))
        with pytest.raises(dist.DistStoreError, match="not etcd's JSON gateway"):
            eventually(lambda: store.get("key"))
