"""The store restarts, hangs, loses its leader, goes away or comes back empty: no worker notices."""

from __future__ import annotations

import base64
import pickle
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lattice.core.keyspace import Put, Transaction
from lattice.core.keyvalue import MARKER
from lattice.stores.etcd import EtcdStore
from tests.agents import Cluster, alive, processor_time
from tests.etcd_server import EtcdCluster, EtcdServer, running
from tests.faults.conftest import LEASE, Form, address
from tests.faults.test_membership import finish
from tests.waiting import eventually, pass_time


@pytest.fixture
def three() -> Iterator[EtcdCluster]:
    cluster = EtcdCluster(3)
    try:
        yield cluster.start()
    finally:
        cluster.stop()


def begun(run: Cluster, nodes: int = 2) -> list[int]:
    """Start agents with two workers each and give the workers' pids."""
    for _ in range(nodes):
        run.agent("--nproc_per_node", "2")
    return run.pids(run.round_of(2 * nodes))


def unharmed(run: Cluster, pids: list[int]) -> None:
    """See that the same workers run, then that a restart and the end still work."""
    assert all(alive(pid) for pid in pids), run.outputs()
    number = max(int(worker["LATTICE_ROUND"]) for worker in run.workers())
    worlds = [agent.worlds() for agent in run.agents]
    assert all(len(rounds) == 1 for rounds in worlds), f"workers were restarted: {worlds}\n{run.outputs()}"
    run.tell(f"exit-{number}-0", 1)
    run.round_of(len(pids), after=number)
    finish(run)


@pytest.mark.parametrize("marker", ["kept", "deleted"])
def test_etcd_restarts(form: Form, own_etcd: EtcdServer, marker: str) -> None:
    run = form("2", "--max_restarts", "1", endpoint=address(own_etcd))
    pids = begun(run)
    if marker == "deleted":  # by an operator: the data look like others, but are all there
        assert own_etcd.etcdctl("del", MARKER).strip() == "1"
    own_etcd.restart()
    for agent in run.agents:
        eventually(lambda agent=agent: len(agent.events("store connected")) == 2)  # type: ignore[misc]
    unharmed(run, pids)


def test_etcd_is_away_for_longer_than_a_lease(form: Form, own_etcd: EtcdServer) -> None:
    run = form("2", "--max_restarts", "1", endpoint=address(own_etcd))
    pids = begun(run)
    own_etcd.kill()
    pass_time(4 * LEASE)
    assert all(alive(pid) for pid in pids)
    own_etcd.restart()
    for agent in run.agents:
        eventually(lambda agent=agent: len(agent.events("store connected")) == 2)  # type: ignore[misc]
    pass_time(2 * LEASE)  # long enough for anyone to be declared lost
    unharmed(run, pids)


def test_etcd_hangs_for_longer_than_a_lease(form: Form, own_etcd: EtcdServer) -> None:
    run = form("2", "--max_restarts", "1", endpoint=address(own_etcd))
    pids = begun(run)
    own_etcd.pause()
    pass_time(3 * LEASE)
    own_etcd.resume()
    pass_time(2 * LEASE)
    unharmed(run, pids)


def test_etcd_comes_back_empty(form: Form, own_etcd: EtcdServer) -> None:
    run = form("2", "--max_restarts", "1", endpoint=address(own_etcd))
    pids = begun(run)
    own_etcd.restart(wipe=True)
    eventually(lambda: [agent for agent in run.agents if agent.events("round refilled")])
    pass_time(2 * LEASE)
    unharmed(run, pids)


def test_etcd_comes_back_empty_and_others_fill_it_first(form: Form, own_etcd: EtcdServer) -> None:
    run = form("1", "--max_restarts", "1", endpoint=address(own_etcd))
    pids = begun(run, nodes=1)
    (agent,) = run.agents
    known = agent.events("store connected")[-1]["revision"] + 100  # more than its first round wrote
    agent.signal(signal.SIGSTOP)
    own_etcd.restart(wipe=True)
    store = EtcdStore((own_etcd.endpoint,), request_timeout=10.0)
    while store.commit(Transaction((Put("/lattice/another-run/x", b""),))).revision <= known:
        pass
    store.close()
    agent.signal(signal.SIGCONT)
    again = eventually(lambda: agent.events("store connected")[1:])[0]
    assert again["revision"] > known and again["emptied"], run.outputs()
    eventually(lambda: agent.events("round refilled"))
    pass_time(2 * LEASE)
    unharmed(run, pids)


def test_etcd_is_replaced_by_an_empty_one_at_another_address(form: Form, tmp_path: Path) -> None:
    file = tmp_path / "endpoints"
    with running(EtcdServer(options=("--initial-cluster-token", "first"))) as first:
        file.write_text(address(first))
        run = form("2", "--max_restarts", "1", endpoint=f"@{file}")
        pids = begun(run)
    for agent in run.agents:
        eventually(lambda agent=agent: agent.events("store lost"))  # type: ignore[misc]
    with running(EtcdServer(options=("--initial-cluster-token", "second"))) as second:
        file.write_text(address(second))
        eventually(lambda: [agent for agent in run.agents if agent.events("round refilled")])
        pass_time(2 * LEASE)
        unharmed(run, pids)


def test_agents_that_are_there_before_the_file_of_endpoints(form: Form, etcd: EtcdServer, tmp_path: Path) -> None:
    file = tmp_path / "endpoints"
    run = form("2", endpoint=f"@{file}")
    agents = [run.agent() for _ in range(2)]
    for agent in agents:
        eventually(lambda agent=agent: agent.events("store lost") and str(file) in agent.output())  # type: ignore[misc]
    file.write_text(f"{address(etcd)}\n")
    run.round_of(2)
    finish(run)


def test_etcd_is_away_and_a_worker_fails_meanwhile(form: Form, own_etcd: EtcdServer) -> None:
    run = form("2", "--max_restarts", "1", endpoint=address(own_etcd))
    begun(run)
    own_etcd.kill()
    for agent in run.agents:
        eventually(lambda agent=agent: agent.events("store lost"))  # type: ignore[misc]
    run.tell("exit-1-3", 5)
    eventually(lambda: any(line["code"] == 5 for agent in run.agents for line in agent.events("worker exited")))
    own_etcd.restart()
    number = run.round_of(4, after=1)
    assert {worker["LATTICE_RESTART_COUNT"] for worker in run.workers(number)} == {"1"}
    finish(run)


def test_etcd_is_away_and_the_work_ends_meanwhile(form: Form, own_etcd: EtcdServer) -> None:
    run = form("2", endpoint=address(own_etcd))
    begun(run)
    own_etcd.kill()
    run.tell("exit")
    for agent in run.agents:
        eventually(lambda agent=agent: len(agent.events("worker exited")) == 2)  # type: ignore[misc]
    own_etcd.restart()
    assert [agent.wait() for agent in run.agents] == [0, 0]
    assert all("succeeded" in agent.output() for agent in run.agents)


def test_etcd_is_away_for_longer_than_the_grace(form: Form, own_etcd: EtcdServer) -> None:
    run = form("2", endpoint=address(own_etcd), store_grace=3)
    pids = begun(run)
    own_etcd.kill()
    for agent in run.agents:
        assert agent.wait() == 1
        assert "store_grace" in agent.output() and "LATTICE_RDZV_CONF" in agent.output()
    assert not any(alive(pid) for pid in pids)


def test_etcd_loses_its_leader(form: Form, three: EtcdCluster) -> None:
    run = form("2", "--max_restarts", "1", endpoint=address(*three.members))
    pids = begun(run)
    three.members[three.leader()].kill()
    pass_time(2 * LEASE)
    unharmed(run, pids)


def test_the_leader_of_etcd_hangs(form: Form, three: EtcdCluster) -> None:
    run = form("2", "--max_restarts", "1", endpoint=address(*three.members))
    pids = begun(run)
    hung = three.members[three.leader()]
    hung.pause()
    try:
        pass_time(3 * LEASE)
        unharmed(run, pids)
    finally:
        hung.resume()


def test_nodes_that_join_or_die_while_etcd_is_away_are_seen_afterwards(form: Form, own_etcd: EtcdServer) -> None:
    run = form("1:3", endpoint=address(own_etcd))
    agents = [run.agent() for _ in range(2)]
    first = run.round_of(2)
    own_etcd.kill()
    agents[0].kill()
    run.agent()
    pass_time(LEASE)
    own_etcd.restart()

    def settled() -> bool:
        newest = max(int(worker["LATTICE_ROUND"]) for worker in run.workers())
        facts = run.workers(newest)
        return newest > first and len(facts) == 2 == int(facts[0]["LATTICE_WORLD_SIZE"])

    eventually(settled, within=60)
    run.tell("exit")
    assert [agent.wait() for agent in run.agents[1:]] == [0, 0]


def test_agents_that_are_there_before_etcd(form: Form, own_etcd: EtcdServer) -> None:
    own_etcd.kill()
    run = form("2", endpoint=address(own_etcd))
    agents = [run.agent() for _ in range(2)]
    for agent in agents:
        eventually(lambda agent=agent: agent.events("store lost") and "trying for 60s" in agent.output())  # type: ignore[misc]
    own_etcd.restart()
    run.round_of(2)
    finish(run)


def test_a_goodbye_while_etcd_is_away(form: Form, own_etcd: EtcdServer) -> None:
    run = form("2", endpoint=address(own_etcd))
    pids = begun(run)
    own_etcd.kill()
    eventually(lambda: run.agents[0].events("store lost"))
    run.agents[0].signal(signal.SIGTERM)
    assert run.agents[0].wait(20) == 143
    mine = run.agents[0].started()
    assert not any(alive(pid) for pid in mine)
    assert all(alive(pid) for pid in pids if pid not in mine)


def test_what_somebody_else_wrote_into_etcd_is_not_believed(form: Form, etcd: EtcdServer) -> None:
    run = form("2", "--max_restarts", "1", run_id="written-into")
    pickled = base64.b64encode(pickle.dumps({"state": "ready"})).decode()
    for key in ("nodes/stranger", "reports/1/stranger", "rosters/1/9", "control/other", "nodes/stranger/below"):
        for value in ("not json", '{"v":1}', '{"v":99,"uuid":"x"}', "[]", pickled):
            etcd.etcdctl("put", f"/lattice/written-into/{key}", value)
    pids = begun(run)
    for key in ("nodes/late", "reports/1/late", "reports/x/late", "rosters/1/x"):
        etcd.etcdctl("put", f"/lattice/written-into/{key}", "not json")
    unharmed(run, pids)


def test_agents_on_etcd_are_small_and_idle(form: Form) -> None:
    run = form("2")
    begun(run)
    spare = run.agent()
    eventually(lambda: spare.events("spare"))
    before = [processor_time(agent.pid) for agent in run.agents]
    pass_time(3)
    used = [processor_time(agent.pid) - start for agent, start in zip(run.agents, before, strict=True)]
    assert max(used) < 1, f"busy while nothing happens: {used}"
    assert max(agent.memory() for agent in run.agents) < 60
    finish(run)
