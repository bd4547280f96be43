"""How a run ends, for those in it, those who come too late, and those who come again."""

from __future__ import annotations

import re

import pytest

from tests.agents import Cluster
from tests.etcd_server import EtcdServer
from tests.faults.conftest import Form
from tests.faults.test_membership import finish
from tests.waiting import eventually, pass_time

FAILS = """
import os, sys, time
from pathlib import Path
rank, here = os.environ["LATTICE_RANK"], Path(sys.argv[1])
(here / f"ready-{rank}").write_text("")
if rank == "2":
    while len(list(here.glob("ready-*"))) < int(os.environ["LATTICE_WORLD_SIZE"]):
        time.sleep(0.01)
    raise RuntimeError("the first cause")
time.sleep(600)
"""


def failed(run: Cluster) -> Cluster:
    entry = [run.script(FAILS), str(run.said)]
    for rank in (0, 1):
        run.agent("--nproc_per_node", "2", "--node_rank", str(rank), entry=entry)
    for agent in run.agents:
        assert agent.wait() == 1
    return run


def test_every_agent_prints_the_same_cause_and_ends_with_the_same_code(form: Form) -> None:
    run = failed(form("2"))
    reports = [agent.output()[agent.output().index("failed in round 1") :] for agent in run.agents]
    assert reports[0] == reports[1]
    assert "rank 2 on " in reports[0] and "RuntimeError: the first cause" in reports[0]


def test_failures_on_several_nodes_are_one_incident_with_one_cause(form: Form) -> None:
    run = form("3")
    agents = [run.agent("--node_rank", str(rank)) for rank in range(3)]
    run.round_of(3)
    run.tell("exit", 7)
    assert [agent.wait() for agent in agents] == [7, 7, 7]
    reports = {agent.output()[agent.output().index("First to fail") :] for agent in agents}
    assert len(reports) == 1
    (report,) = reports
    others = re.findall(r"then rank (\d)", report)
    (first,) = re.findall(r"  rank (\d) on", report)
    assert len({first, *others}) == 1 + len(others) <= 3


def test_a_signal_to_a_worker_is_the_code_of_all(form: Form) -> None:
    run = form("2")
    entry = [
        run.script("import os, time\nos.environ['LATTICE_RANK'] == '1' and os.kill(os.getpid(), 9)\ntime.sleep(600)")
    ]
    agents = [run.agent(entry=entry) for _ in range(2)]
    assert [agent.wait() for agent in agents] == [137, 137]
    assert all("signal 9 (SIGKILL)" in agent.output() for agent in agents)


def test_who_comes_after_the_end_gets_the_outcome(form: Form) -> None:
    run = failed(form("2", outcome_ttl=60))
    late = run.agent()
    assert late.wait() == 1
    assert "RuntimeError: the first cause" in late.output()
    (left,) = re.findall(r"free again in (\d+)s", late.output())
    assert 0 < int(left) <= 60
    assert not late.worlds()


def test_who_comes_after_a_success_gets_zero(form: Form) -> None:
    run = form("1", outcome_ttl=60)
    run.agent()
    run.round_of(1)
    finish(run)
    late = run.agent()
    assert late.wait() == 0
    assert "succeeded" in late.output() and "free again in" in late.output()


def test_an_id_is_free_after_the_outcome_is_gone(form: Form, etcd: EtcdServer) -> None:
    run = form("2", outcome_ttl=1, run_id="used-again")
    for _ in range(2):
        run.agent()
    run.round_of(2)
    finish(run)
    eventually(lambda: "/lattice/" not in etcd.etcdctl("get", "--prefix", "--keys-only", "/lattice/used-again/"))
    (run.said / "exit").unlink()
    again = [run.agent() for _ in range(2)]
    for agent in again:
        (started,) = eventually(lambda agent=agent: agent.events("round started"))  # type: ignore[misc]
        assert started["round"] == 1
    finish(run)


def test_a_node_that_is_done_waits_and_takes_part_in_the_restart(form: Form) -> None:
    run = form("2", "--max_restarts", "1")
    agents = [run.agent("--node_rank", str(rank)) for rank in range(2)]
    first = run.round_of(2)
    run.tell(f"exit-{first}-0", 0)
    eventually(lambda: agents[0].events("worker exited"))
    run.tell(f"exit-{first}-1", 1)
    second = run.round_of(2, after=first)
    assert {worker["LATTICE_RESTART_COUNT"] for worker in run.workers(second)} == {"1"}
    finish(run)
    assert [agent.worlds() for agent in agents] == [[2, 2], [2, 2]]


def test_a_done_node_that_dies_is_no_loss(form: Form, etcd: EtcdServer) -> None:
    run = form("2", run_id="done-dies")
    agents = [run.agent("--node_rank", str(rank)) for rank in range(2)]
    run.round_of(2)
    run.tell("exit-0", 0)

    def keys(below: str) -> list[str]:
        return etcd.etcdctl("get", "--prefix", "--keys-only", f"/lattice/done-dies/{below}/").split()

    eventually(lambda: len(keys("reports")) == 1)
    agents[0].kill()
    eventually(lambda: len(keys("nodes")) == 1)
    pass_time(1)
    run.tell("exit-1", 0)
    assert agents[1].wait() == 0
    assert agents[1].worlds() == [2]


def test_nothing_is_left_in_etcd_but_the_outcome(form: Form, etcd: EtcdServer) -> None:
    run = form("2", outcome_ttl=60, run_id="clean-end")
    for _ in range(2):
        run.agent()
    run.round_of(2)
    finish(run)
    keys = etcd.etcdctl("get", "--prefix", "--keys-only", "/lattice/clean-end/").split()
    assert keys == ["/lattice/clean-end/control/outcome"]


@pytest.mark.parametrize("code", [0, 5])
def test_workers_that_end_at_once_on_every_node(form: Form, code: int) -> None:
    run = form("3")
    entry = ["sh", "-c", f"exit {code}"]
    agents = [run.agent("--no_python", "--nproc_per_node", "2", entry=entry) for _ in range(3)]
    assert [agent.wait() for agent in agents] == [code] * 3
