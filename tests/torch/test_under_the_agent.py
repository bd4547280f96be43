from __future__ import annotations

from pathlib import Path

from tests.agents import ROOT, cluster
from tests.etcd_server import EtcdServer


def test_a_group_on_the_runs_store_comes_back_and_leaves_nothing(etcd: EtcdServer, tmp_path: Path) -> None:
    options = ("--framework", "pytorch", "--nproc_per_node", "2", "--max_restarts", "1")
    with cluster(tmp_path, "--rdzv_endpoint", f"127.0.0.1:{etcd.client_port}", "--rdzv_id", "group%1", *options) as run:
        agent = run.agent(entry=[str(ROOT / "tests" / "workers" / "lattice_group.py")])
        assert agent.wait(120) == 0, agent.output()
        assert agent.output().count("group of 2 in round 2") == 2
    left = etcd.etcdctl("get", "--prefix", "/lattice/", "--keys-only")
    assert [key for key in left.split() if "group%251" in key] == ["/lattice/group%251/control/outcome"]
