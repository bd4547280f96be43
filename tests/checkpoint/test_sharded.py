"""State of torch, saved by some ranks and restored by others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

from tests.agents import ROOT, AgentProcess, Cluster, clean_environment, cluster
from tests.checkpoint.looking import steps
from tests.etcd_server import free_ports
from tests.tiers import quick_and_long
from tests.waiting import patience

SAVER = str(ROOT / "tests" / "workers" / "sharded_saver.py")


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "run").mkdir()
    # One import for all ranks of a node: it takes longer than all the rest.
    with cluster(tmp_path / "run", "--framework", "pytorch", "--preload", "torch.distributed.checkpoint") as made:
        yield made


def go(run: Cluster, where: str, ranks: int, *options: str, how: str = "") -> AgentProcess:
    agent = run.agent("--nproc_per_node", str(ranks), *options, entry=[SAVER, where, *([how] if how else [])])
    assert agent.wait(120) == 0, agent.output()
    return agent


@pytest.mark.long
def test_any_number_of_ranks_restores_what_any_other_saved(run: Cluster, tmp_path: Path) -> None:
    where = str(tmp_path / "saved")
    for number, ranks in enumerate((2, 3, 1)):
        output = go(run, where, ranks).output()
        for rank in range(ranks):
            assert f"rank {rank} of {ranks} from {number}" in output
    assert steps(where) == [3, 2, 1]


@pytest.mark.parametrize("where", quick_and_long(["folder"], ["s3"]), indirect=True)
def test_ranks_that_die_after_saving_go_on_from_memory(run: Cluster, where: str) -> None:
    agent = go(run, where, 2, "--max_restarts", "1", how="die")
    assert "going on from step 1, from memory" in agent.output()
    assert steps(where) == [2, 1]


@pytest.mark.long
def test_two_nodes_complete_a_checkpoint_together(run: Cluster, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    where = str(tmp_path / "saved")
    for number in range(2):
        meet = ["--nnodes", "2", "--rdzv_id", f"two-{number}", "--rdzv_backend", "embedded"]
        meet += ["--rdzv_endpoint", f"127.0.0.1:{port}"]
        agents = [run.agent(*meet, "--node_rank", str(rank), entry=[SAVER, where]) for rank in (0, 1)]
        for rank, agent in enumerate(agents):
            assert agent.wait(120) == 0, agent.output()
            assert f"rank {rank} of 2 from {number}" in agent.output()
    assert steps(where) == [2, 1]


def test_what_is_saved_is_what_torch_itself_reads(run: Cluster, tmp_path: Path) -> None:
    where = tmp_path / "saved"
    go(run, str(where), 2)
    (folder,) = where.glob("step_*")
    table, weight = torch.zeros(13, 2), torch.zeros(4, 4)
    dcp.load({"table": table, "model": {"weight": weight}}, checkpoint_id=str(folder), no_dist=True)
    assert torch.equal(table, torch.arange(26.0).reshape(13, 2)) and weight.abs().sum() > 0


PLAIN = """
import sys
import torch.distributed as dist
from lattice.checkpoint import Checkpointer
saver = Checkpointer(sys.argv[1])
saver.save(1, "before there is a group")
dist.init_process_group("gloo")
rank = dist.get_rank()
saver.save(2, {"rank": rank, "more": "x" * (1 + 1000 * rank)})
saver.wait()
print(f"rank {rank} has {saver.restore(None)}", flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def test_a_plain_state_is_that_of_rank_0(run: Cluster, tmp_path: Path) -> None:
    where = str(tmp_path / "saved")
    agent = run.agent("--nproc_per_node", "2", "--checkpoint_timeout", "5", entry=[run.script(PLAIN), where])
    assert agent.wait(120) == 0, agent.output()
    for rank in range(2):
        assert f"rank {rank} has ({{'rank': 0, 'more': 'x'}}, 2)" in agent.output()
    assert steps(where) == [2, 1]


ALONE = """
import json, sys
import torch
from lattice.checkpoint import Checkpointer, CheckpointError
saver = Checkpointer(sys.argv[1])
model = torch.nn.Linear(2, 2)
model.weight.data.fill_(float(sys.argv[2]))
state = {"model": model, "t": torch.ones(3, dtype=torch.bfloat16)}
try:
    found, step = saver.restore(state)
    print(json.dumps([step, model.weight.mean().item(), str(found["t"].dtype)]))
except CheckpointError as error:
    print(json.dumps([str(error), model.weight.mean().item()]))
    sys.exit()
if step == 0:
    saver.save(1, state)
"""


@pytest.mark.long
def test_a_process_without_a_group_and_nothing_is_touched_by_what_is_damaged(tmp_path: Path) -> None:
    where = tmp_path / "saved"

    def said(value: str) -> list[object]:
        command = [sys.executable, "-c", ALONE, str(where), value]
        done = subprocess.run(
            command,
            env={**os.environ, **clean_environment()},
            capture_output=True,
            text=True,
            timeout=patience(120),
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "UserWarning" not in done.stderr
        found: list[object] = json.loads(done.stdout)
        return found

    assert said("5") == [0, 5.0, "torch.bfloat16"]
    assert said("7") == [1, 5.0, "torch.bfloat16"]
    (file,) = where.glob("step_*/*.distcp")
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    problem, weight = said("9")
    assert "none of the 1 checkpoints" in str(problem) and "SHA-256" in str(problem) and weight == 9.0
