"""Nodes that are gone: killed, leaving, leading, or only asleep; who is left goes on, and says why."""

from __future__ import annotations

import json
import signal
import time

import pytest

from tests.agents import AgentProcess, Cluster, alive
from tests.etcd_server import EtcdServer
from tests.faults.conftest import LEASE, Form
from tests.faults.test_membership import finish
from tests.waiting import eventually, patience

MARGIN = 20.0
"""seconds: the machine is busy; etcd looks for lapsed leases twice a second, and a short round makes the next wait"""


def leader(run: Cluster) -> AgentProcess:
    """Find the agent that leads."""

    def find() -> AgentProcess | None:
        leading = [agent for agent in run.agents if agent.process.poll() is None and agent.events("leading")]
        return max(leading, key=lambda agent: agent.events("leading")[-1]["time"], default=None)

    found = eventually(find)
    assert found is not None
    return found


def test_a_node_that_is_killed_is_missed_and_uses_no_budget(form: Form) -> None:
    run = form("1:2", "--nproc_per_node", "2")
    agents = [run.agent() for _ in range(2)]
    first = run.round_of(4)
    victim = next(agent for agent in agents if agent is not leader(run))
    began = time.monotonic()
    victim.kill()
    second = run.round_of(2, after=first)
    assert time.monotonic() - began < LEASE + patience(MARGIN)
    (facts, _) = run.workers(second)
    assert facts["LATTICE_RESTART_COUNT"] == "0"
    assert "lost" in agents[0 if victim is agents[1] else 1].events("round started")[-1]["reason"]
    finish(run)


def test_a_leader_that_is_killed_is_replaced(form: Form) -> None:
    run = form("2:3")
    for _ in range(3):
        run.agent()
    first = run.round_of(3)
    leader(run).kill()
    second = run.round_of(2, after=first)
    run.agent()
    run.round_of(3, after=second)
    finish(run)


@pytest.mark.parametrize("leads", [True, False])
def test_a_node_that_leaves_is_missed_at_once(form: Form, leads: bool) -> None:
    run = form("1:2", lease_ttl=patience(60))
    agents = [run.agent() for _ in range(2)]
    first = run.round_of(2)
    leading = leader(run)
    leaving = next(agent for agent in agents if (agent is leading) == leads)
    leaving.signal(signal.SIGTERM)
    assert leaving.wait() == 143
    began = time.monotonic()
    run.round_of(1, after=first)
    assert time.monotonic() - began < patience(30), "noticed only by its lease"
    finish(run)


def test_everyone_leaves_and_the_id_is_free(form: Form) -> None:
    run = form("2")
    agents = [run.agent() for _ in range(2)]
    run.round_of(2)
    for agent in agents:
        agent.signal(signal.SIGTERM)
    for agent in agents:
        assert agent.wait() == 143
    later = run.agent("--nnodes", "1")
    (started,) = eventually(lambda: later.events("round started"))
    assert (started["round"], started["world"]) == (1, 1)
    finish(run)


@pytest.mark.parametrize("leads", [True, False])
def test_a_node_that_sleeps_past_its_lease_comes_back_as_a_newcomer(form: Form, leads: bool) -> None:
    run = form("1:2")
    agents = [run.agent() for _ in range(2)]
    first = run.round_of(2)
    sleeper = next(agent for agent in agents if (agent is leader(run)) == leads)
    mine = sleeper.started(first)
    sleeper.signal(signal.SIGSTOP)
    second = run.round_of(1, after=first)
    assert all(alive(pid) for pid in mine), "its workers are still there: nobody could tell them"
    sleeper.signal(signal.SIGCONT)
    third = run.round_of(2, after=second)
    assert not any(alive(pid) for pid in mine), "workers of two rounds at once on one node"
    assert third > second
    finish(run)
    assert {agent.wait() for agent in agents} == {0}


def test_a_node_that_sleeps_less_than_its_lease_is_not_missed(form: Form) -> None:
    run = form("2", lease_ttl=20)
    agents = [run.agent() for _ in range(2)]
    pids = run.pids(run.round_of(2))
    agents[0].signal(signal.SIGSTOP)
    eventually(lambda: all(alive(pid) for pid in pids))
    agents[0].signal(signal.SIGCONT)
    finish(run)
    assert [agent.worlds() for agent in agents] == [[2], [2]]


def test_all_agents_killed_and_the_same_id_begins_anew(form: Form, etcd: EtcdServer) -> None:
    def uuid() -> str:
        return str(json.loads(etcd.etcdctl("get", "--print-value-only", "/lattice/all-killed/control/run"))["uuid"])

    run = form("2", run_id="all-killed")
    first = [run.agent() for _ in range(2)]
    run.round_of(2)
    before = uuid()
    for agent in first:
        agent.kill()
    eventually(lambda: "nodes/" not in etcd.etcdctl("get", "--prefix", "--keys-only", "/lattice/all-killed/"))
    later = [run.agent() for _ in range(2)]
    for agent in later:
        (started,) = eventually(lambda agent=agent: agent.events("round started"))  # type: ignore[misc]
        assert (started["round"], started["restarts"]) == (1, 0)
    assert uuid() != before
    run.tell("exit")
    assert [agent.wait() for agent in later] == [0, 0]


def test_all_members_killed_and_the_spares_go_on_with_the_run(form: Form) -> None:
    run = form("2", "--max_restarts", "1")
    members = [run.agent() for _ in range(2)]
    first = run.round_of(2)
    spares = [run.agent() for _ in range(2)]
    for spare in spares:
        eventually(lambda spare=spare: spare.events("spare"))  # type: ignore[misc]
    for member in members:
        member.kill()
    second = run.round_of(2, after=first)
    assert {worker["LATTICE_RESTART_COUNT"] for worker in run.workers(second)} == {"0"}
    run.tell("exit")
    assert [spare.wait() for spare in spares] == [0, 0]


def test_a_worker_failure_restarts_all_nodes_and_uses_the_budget(form: Form) -> None:
    run = form("2", "--nproc_per_node", "2", "--max_restarts", "1")
    agents = [run.agent() for _ in range(2)]
    first = run.round_of(4)
    before = run.pids(first)
    run.tell(f"exit-{first}-3", 1)
    second = run.round_of(4, after=first)
    assert second == first + 1
    assert not any(alive(pid) for pid in before)
    assert {worker["LATTICE_RESTART_COUNT"] for worker in run.workers(second)} == {"1"}
    run.tell(f"exit-{second}-0", 9)
    assert [agent.wait() for agent in agents] == [9, 9]


def test_a_killed_node_whose_peers_crash_first_is_still_the_cause(form: Form) -> None:
    """Its peers' collectives break at once, its lease lapses later: no budget may be used for that."""
    run = form("1:2", last_call=30)  # no restarts allowed
    breaks = run.script("""
import json, os, socket, sys, time
from pathlib import Path
here = Path(sys.argv[1])
number, rank = os.environ["LATTICE_ROUND"], os.environ["LATTICE_RANK"]
facts = {name: value for name, value in os.environ.items() if name.startswith("LATTICE_")} | {"pid": os.getpid()}
name = f"{os.environ['LATTICE_AGENT']}-{number}-{rank}.json"
(here / f".{name}").write_text(json.dumps(facts))
(here / f".{name}").rename(here / name)
if os.environ["LATTICE_WORLD_SIZE"] == "1":
    sys.exit(0)
while not (here / "break").exists():
    time.sleep(0.01)
raise ConnectionResetError("Connection reset by peer")
""")
    agents = [run.agent(entry=[breaks, str(run.said)]) for _ in range(2)]
    run.round_of(2)
    victim = next(agent for agent in agents if agent is not leader(run))
    survivor = next(agent for agent in agents if agent is not victim)
    victim.kill()
    run.tell("break")
    assert survivor.wait() == 0, survivor.output()
    assert survivor.worlds() == [2, 1]
