"""What every test may ask for."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator

import pytest

from tests.etcd_server import EtcdServer, running
from tests.lab.cluster import Cluster, cluster

# Whatever started this may ignore them, as a shell does for what runs in its background: an agent would obey that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from walking through all that was imported: a hundred thousand objects, each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    """An etcd that many tests share: use a run id or prefix of your own, and do it no harm."""
    with running(EtcdServer()) as server:
        yield server


@pytest.fixture
def own_etcd() -> Iterator[EtcdServer]:
    """An etcd for one test, which may kill, pause or wipe it."""
    with running(EtcdServer()) as server:
        yield server


@pytest.fixture(scope="session")
def kubernetes_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    """A Kubernetes that many tests share: use a namespace of your own, and bring back the nodes that you break."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def tell(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(line, file=sys.stderr, flush=True)

    with cluster(tell) as up:
        yield up


@pytest.fixture
def namespace(kubernetes_cluster: Cluster) -> Iterator[str]:
    """A namespace of Kubernetes for one test."""
    with kubernetes_cluster.api.namespace() as name:
        yield name
