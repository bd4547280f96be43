"""Hosts that are cut off silently: links stay up and packets vanish, so that only time can tell."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.agents import ROOT, AgentProcess, Cluster, alive, cluster
from tests.etcd_server import READY, require_etcd
from tests.faults.conftest import LEASE, options
from tests.faults.test_losses import leader
from tests.faults.test_membership import finish
from tests.lab.hosts import Network, network
from tests.waiting import eventually, pass_time

pytestmark = pytest.mark.lab


@contextmanager
def etcd_on(hosts: Network, host: str, folder: Path) -> Iterator[None]:
    """Run etcd on a host."""
    url, peer, log = f"http://{hosts.address(host)}:2379", "http://127.0.0.1:2380", folder / "etcd.log"
    argv = ["etcd", "--name", "alone", "--data-dir", str(folder / "etcd")]
    argv += ["--listen-client-urls", url, "--advertise-client-urls", url]
    argv += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"alone={peer}"]
    with log.open("wb") as output:
        server = subprocess.Popen(
            hosts.on(host, *argv), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        eventually(lambda: READY in log.read_bytes())
        yield
    finally:
        server.kill()
        server.wait()


class Hosts:
    """A network whose first host has etcd, and a run on the others."""

    def __init__(self, net: Network, run: Cluster) -> None:
        self.net = net
        self.run = run
        self.store, *self.others = net.names
        self.agents: dict[str, AgentProcess] = {}

    def start(self, *hosts: str) -> None:
        """Start an agent with two workers on each host."""
        for host in hosts or self.others:
            self.agents[host] = self.run.agent("--nproc_per_node", "2", prefix=self.net.on(host))

    def host_of(self, agent: AgentProcess) -> str:
        """Tell where an agent runs."""
        return next(host for host, other in self.agents.items() if other is agent)


@pytest.fixture
def lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Hosts]:
    """Four hosts; the parameter is what changes in rdzv_conf."""
    require_etcd()
    with ExitStack() as stack:
        net = stack.enter_context(network(4))
        stack.enter_context(etcd_on(net, net.names[0], tmp_path))
        given = options("2:3", f"{net.names[0]}:2379", "--max_restarts", "1", **getattr(request, "param", {}))
        yield Hosts(net, stack.enter_context(cluster(tmp_path, *given)))


@pytest.mark.parametrize("leads", [True, False])
def test_a_node_that_is_cut_off_is_missed_and_joins_anew_when_it_is_back(lab: Hosts, leads: bool) -> None:
    lab.start()
    first = lab.run.round_of(6)
    assert {worker["LATTICE_RESTART_COUNT"] for worker in lab.run.workers(first)} == {"0"}
    leading = leader(lab.run)
    victim = next(agent for agent in lab.run.agents if (agent is leading) == leads)
    old = victim.started(first)
    lab.net.partition(lab.host_of(victim))
    second = lab.run.round_of(4, after=first)
    assert all(alive(pid) for pid in old), "it cannot know whether it or etcd is gone"
    lab.net.heal()
    third = lab.run.round_of(6, after=second)
    assert not any(alive(pid) for pid in old)
    assert {worker["LATTICE_RESTART_COUNT"] for worker in lab.run.workers(third)} == {"0"}
    finish(lab.run)


@pytest.mark.parametrize("lab", [{"store_grace": 4}], indirect=True)
def test_a_node_that_stays_cut_off_stops_its_workers_after_the_grace(lab: Hosts) -> None:
    lab.start()
    first = lab.run.round_of(6)
    victim = lab.run.agents[1]
    old = victim.started(first)
    lab.net.partition(lab.host_of(victim))
    lab.run.round_of(4, after=first)
    assert victim.wait() == 1
    assert "store_grace" in victim.output().splitlines()[-1]
    assert not any(alive(pid) for pid in old)
    lab.net.heal()
    finish(lab.run)


@pytest.mark.parametrize("lab", [{"lease_ttl": 15}], indirect=True)
def test_a_cut_shorter_than_the_lease_is_noticed_by_nobody(lab: Hosts) -> None:
    lab.start()
    pids = lab.run.pids(lab.run.round_of(6))
    lab.net.partition(lab.others[0])
    eventually(lambda: lab.agents[lab.others[0]].events("store lost"))
    lab.net.heal()
    eventually(lambda: len(lab.agents[lab.others[0]].events("store connected")) == 2)
    pass_time(2)
    assert all(alive(pid) for pid in pids)
    finish(lab.run)
    assert [agent.worlds() for agent in lab.run.agents] == [[6]] * 3


def test_the_host_of_etcd_is_cut_off_and_no_worker_is_restarted(lab: Hosts) -> None:
    lab.start()
    pids = lab.run.pids(lab.run.round_of(6))
    lab.net.partition(lab.store)
    pass_time(4 * LEASE)  # every lease lapses at etcd, which is well and sees nobody
    assert all(alive(pid) for pid in pids)
    lab.net.heal()
    for agent in lab.run.agents:
        eventually(lambda agent=agent: len(agent.events("store connected")) >= 2)  # type: ignore[misc]
    pass_time(2 * LEASE)  # long enough for anyone to be declared lost
    assert all(alive(pid) for pid in pids), lab.run.outputs()
    assert [agent.worlds() for agent in lab.run.agents] == [[6]] * 3
    lab.run.tell("exit-1-5", 1)
    lab.run.round_of(6, after=1)
    finish(lab.run)


def test_workers_use_the_address_that_faces_the_store(lab: Hosts) -> None:
    lab.run.options += ["--framework", "pytorch"]
    lab.start()
    first = lab.run.round_of(6)
    (master,) = {worker["MASTER_ADDR"] for worker in lab.run.workers(first)}
    assert master in [lab.net.address(host) for host in lab.others]
    finish(lab.run)


def test_a_group_forms_between_hosts_whose_own_names_lead_to_the_loopback(lab: Hosts) -> None:
    pytest.importorskip("torch")
    lab.net.forget_own_addresses()
    entry = [str(ROOT / "tests/workers/gloo.py"), str(lab.run.said)]
    for host in lab.others:
        lab.run.agent("--framework", "pytorch", entry=entry, prefix=lab.net.on(host))
    first = lab.run.round_of(3)
    assert [worker["sum"] for worker in lab.run.workers(first)] == [6, 6, 6]
    finish(lab.run)
