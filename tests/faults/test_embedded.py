"""Without etcd: node 0 serves the store, and the command lines of torchrun work with the first word changed."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import AgentProcess, Cluster, alive, cluster
from tests.etcd_server import free_ports, listens
from tests.faults.conftest import conf
from tests.faults.test_membership import finish
from tests.waiting import eventually

TORCHRUN = ("-m", "lattice", "torchrun")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path, "--rdzv_conf", conf(), "--shutdown_timeout", "5") as made:
        yield made


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


def c10d(run: Cluster, port: int, *options: str, nnodes: str = "3", password: str = "") -> AgentProcess:
    """Start an agent as the documentation of torchrun shows it."""
    line = ["--nnodes", nnodes, "--rdzv_id", "1", "--rdzv_backend", "c10d", "--rdzv_endpoint", f"127.0.0.1:{port}"]
    environ = {"LATTICE_RDZV_PASSWORD": password} if password else {}
    return run.agent(*line, *options, program=TORCHRUN, environ=environ)


def server(run: Cluster, port: int) -> AgentProcess:
    """Find the agent that serves the store."""
    return eventually(
        lambda: [agent for agent in run.agents if agent.process.poll() is None and listens(agent.pid, port)]
    )[0]


def test_the_c10d_form_with_three_agents(run: Cluster, port: int) -> None:
    for _ in range(3):
        c10d(run, port, "--nproc_per_node", "2", "--max_restarts", "1")
    first = run.round_of(6)
    assert {worker["TORCHELASTIC_RUN_ID"] for worker in run.workers(first)} == {"1"}
    run.tell(f"exit-{first}-4", 1)
    run.round_of(6, after=first)
    finish(run)
    assert all("succeeded" in agent.output() for agent in run.agents)


def test_the_static_form(run: Cluster, port: int) -> None:
    line = ["--nnodes", "2", "--master_addr", "127.0.0.1", "--master_port", str(port)]
    second = run.agent(*line, "--node_rank", "1", program=TORCHRUN)
    first = run.agent(*line, "--node_rank", "0", program=TORCHRUN)
    run.round_of(2)
    assert [agent.events("round started")[0]["group_rank"] for agent in (first, second)] == [0, 1]
    assert server(run, port) is first
    finish(run)


def test_every_node_learns_of_a_failure_before_the_store_goes(run: Cluster, port: int) -> None:
    for _ in range(3):
        c10d(run, port)
    run.round_of(3)
    run.tell("exit-1", 7)
    assert [agent.wait() for agent in run.agents] == [7, 7, 7]
    reports = {agent.output()[agent.output().index("First to fail") :] for agent in run.agents}
    assert len(reports) == 1


def test_a_wrong_password_is_refused(run: Cluster, port: int) -> None:
    for _ in range(2):
        c10d(run, port, nnodes="2:3", password="right")
    first = run.round_of(2)
    for password in ("other", ""):
        stranger = c10d(run, port, nnodes="2:3", password=password)
        assert stranger.wait() == 1
        assert "LATTICE_RDZV_PASSWORD" in stranger.output()
        assert not stranger.events("round started")
    assert run.agents[0].worlds() == run.agents[1].worlds() == [2]
    assert all(alive(pid) for pid in run.pids(first))
    finish(run)


def test_a_port_that_is_taken(run: Cluster, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)):
        line = ["--nnodes", "2", "--master_addr", "127.0.0.1", "--master_port", str(port), "--node_rank", "0"]
        agent = run.agent(*line, program=TORCHRUN)
        assert agent.wait() == 2
    assert str(port) in agent.output().splitlines()[-1]
    assert "Traceback" not in agent.output()


def test_a_lost_node_is_missed(run: Cluster, port: int) -> None:
    for _ in range(3):
        c10d(run, port, nnodes="2:3")
    first = run.round_of(3)
    next(agent for agent in run.agents if agent is not server(run, port)).kill()
    run.round_of(2, after=first)
    finish(run)


def test_when_node_0_is_killed_the_others_stop_after_the_grace(run: Cluster, port: int) -> None:
    for _ in range(2):
        c10d(run, port, "--rdzv_conf", conf(store_grace=2), nnodes="2")
    pids = run.pids(run.round_of(2))
    serving = server(run, port)
    serving.kill()
    (other,) = (agent for agent in run.agents if agent is not serving)
    assert other.wait() == 1
    assert f"127.0.0.1:{port}" in other.output().splitlines()[-1]
    assert not any(alive(pid) for pid in pids)


def test_when_node_0_is_started_again_the_others_come_back(run: Cluster, port: int) -> None:
    for rank in range(3):
        c10d(run, port, "--node_rank", str(rank))
    run.round_of(3)
    run.agents[0].kill()
    again = c10d(run, port, "--node_rank", "0")
    eventually(lambda: again.events("round started"), within=60)
    run.tell("exit")
    assert [agent.wait() for agent in run.agents[1:]] == [0, 0, 0]


def test_node_0_pauses_and_nobody_is_restarted(run: Cluster, port: int) -> None:
    for _ in range(2):
        c10d(run, port, nnodes="2")
    pids = run.pids(run.round_of(2))
    serving = server(run, port)
    serving.signal(signal.SIGSTOP)
    (other,) = (agent for agent in run.agents if agent is not serving)
    eventually(lambda: other.events("store lost"))
    serving.signal(signal.SIGCONT)
    eventually(lambda: len(other.events("store connected")) == 2)
    finish(run)
    assert [agent.worlds() for agent in run.agents] == [[2], [2]]
    assert pids == run.pids(1)
