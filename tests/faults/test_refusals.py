"""Bad beginnings: one readable line with what was tried, an exit code, and nothing left running."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import AgentProcess, Cluster, cluster
from tests.etcd_server import EtcdServer, free_ports, running
from tests.faults.conftest import Form, conf, options
from tests.faults.test_membership import finish
from tests.stores.certificates import Authority
from tests.waiting import eventually


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Cluster]:
    with cluster(tmp_path) as made:
        yield made


def refused(agent: AgentProcess) -> str:
    """Give the last line of an agent that could not begin."""
    assert agent.wait() in (1, 2), agent.output()
    assert "Traceback" not in agent.output()
    assert not agent.events("round started")
    return agent.output().splitlines()[-1]


def test_nobody_listens_at_the_endpoint(run: Cluster) -> None:
    (port,) = free_ports(1)
    line = refused(run.agent(*options("2", f"127.0.0.1:{port}", connect_timeout=1)))
    assert f"127.0.0.1:{port}" in line and "for 1s" in line and "LATTICE_RDZV_ENDPOINT" in line


def test_a_name_that_does_not_resolve(run: Cluster) -> None:
    line = refused(run.agent(*options("2", "no-such-host.invalid:2379", connect_timeout=1)))
    assert "no-such-host.invalid" in line


def test_a_server_that_is_no_etcd(run: Cluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        line = refused(run.agent(*options("2", f"127.0.0.1:{port}", connect_timeout=2)))
    assert f"127.0.0.1:{port}" in line


def test_a_wrong_password(run: Cluster, own_etcd: EtcdServer) -> None:
    own_etcd.enable_auth(("someone", "right", "/lattice/"))
    host, port = own_etcd.endpoint
    given = options("1", f"{host}:{port}", user="someone")
    agent = run.agent(*given, environ={"LATTICE_RDZV_PASSWORD": "wrong"})
    line = refused(agent)
    assert "user" in line or "password" in line
    assert "wrong" not in line.replace("wrong user", "").replace("wrong password", ""), "a password was printed"


def test_the_right_password(run: Cluster, own_etcd: EtcdServer) -> None:
    own_etcd.enable_auth(("someone", "right", "/lattice/"))
    host, port = own_etcd.endpoint
    for _ in range(2):
        run.agent(
            *options("2", f"{host}:{port}", user="someone", run_id="auth"), environ={"LATTICE_RDZV_PASSWORD": "right"}
        )
    run.round_of(2)
    finish(run)


def test_a_certificate_of_another_authority(run: Cluster, tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs").mkdir()
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    certificate, key = ours.sign("server")
    with running(EtcdServer(scheme="https", options=["--cert-file", certificate, "--key-file", key])) as server:
        host, port = server.endpoint
        line = refused(run.agent(*options("1", f"{host}:{port}", cacert=theirs.certificate, connect_timeout=5)))
        assert "certificate" in line
        run.agent(*options("1", f"{host}:{port}", cacert=ours.certificate))
        run.round_of(1)
        finish(run)


def test_nodes_that_contradict_before_the_first_round(form: Form) -> None:
    made = form("2")
    first = made.agent()
    eventually(lambda: first.events("waiting"))
    other = made.agent("--nnodes", "3")
    assert "--nnodes 2" in refused(other)
    made.agent()
    made.round_of(2)
    finish(made)


def test_conf_with_an_unknown_key(run: Cluster) -> None:
    line = refused(run.agent("--rdzv_conf", f"{conf()},lease_tll=3"))
    assert "lease_tll" in line and "lease_ttl" in line
