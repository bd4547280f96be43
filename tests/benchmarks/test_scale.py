"""What a node costs etcd does not grow with the number of nodes: counted by etcd itself, with simulated agents."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks import scale_meters
from benchmarks.scale_cluster import LEADER, Cluster
from benchmarks.scale_meters import Reading
from tests.etcd_server import EtcdServer

NODES = 24
SLACK = 10
"""calls of the leader, and of nodes that were first to come"""


def test_bare_clients_do_what_agents_do_and_no_more(own_etcd: EtcdServer, cluster: Cluster) -> None:
    for what, calls in (("join", 3), ("again", 1)):
        before = meters(own_etcd, cluster)
        assert cluster.floor(what) > 0
        cost = meters(own_etcd, cluster).since(before)
        # The clients, and whoever watches them and tells them to go on.
        assert calls * NODES <= cost.calls <= calls * NODES + 4
    cluster.floor("leave")


@pytest.fixture
def cluster(own_etcd: EtcdServer) -> Iterator[Cluster]:
    host, port = own_etcd.endpoint
    agents = Cluster(f"{host}:{port}", NODES, spread=1, lease_ttl=5.0)
    try:
        yield agents
    finally:
        agents.close()


def meters(etcd: EtcdServer, cluster: Cluster) -> Reading:
    return scale_meters.read(cluster.endpoint, etcd.pid, 0, [])


def test_a_node_costs_etcd_a_few_calls_and_bytes_for_each_round(own_etcd: EtcdServer, cluster: Cluster) -> None:
    cluster.prepare(minimum=NODES // 2)
    before = meters(own_etcd, cluster)
    cluster.start(together=True)
    cluster.started()
    first = meters(own_etcd, cluster).since(before)
    # Make a lease, greet, watch; register, if there was no run yet. Some try to begin the run, with a lease and a
    # transaction: EAGER of them on an idle machine, each of them at most once on one where news come late.
    assert first.calls <= 6 * NODES + SLACK
    assert first.requests.get("Range", 0) <= SLACK  # most know their places without asking
    assert first.requests["Watch"] <= NODES + 1
    assert first.sent <= 10_000 * NODES

    before = meters(own_etcd, cluster)
    cluster.goodbye()
    cluster.started()
    left = meters(own_etcd, cluster).since(before)
    # Every other node says that it has stopped. None but the first and whoever moved up asks for its place.
    assert left.requests["Txn"] <= NODES + SLACK
    assert left.requests.get("Range", 0) <= SLACK
    assert left.requests.get("Watch", 0) <= 1  # of a new leader, if it was the leader who left

    before = meters(own_etcd, cluster)
    cluster.kill(LEADER)
    cluster.started()
    lost = meters(own_etcd, cluster).since(before)
    # A few try to lead, one does and reads all. Whoever was beaten asks for nothing.
    assert lost.requests["Txn"] <= NODES + SLACK
    assert lost.requests.get("Range", 0) + lost.requests.get("Watch", 0) <= SLACK
    assert not cluster.troubles
