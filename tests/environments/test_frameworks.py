"""Real frameworks form real groups under a real agent, on the ports that it holds for them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.agents import cluster
from tests.frameworks import interpreter

# The first run installs a framework; after that these take seconds.
pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]

JAX = """
import jax
from jax.experimental import multihost_utils
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize()
everyone = multihost_utils.process_allgather(jax.numpy.array([jax.process_index() + 1]))
print("group:", jax.process_index(), jax.process_count(), int(everyone.sum()), flush=True)
jax.distributed.shutdown()
"""

TENSORFLOW = """
import json, os
import tensorflow as tf
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
strategy = tf.distribute.MultiWorkerMirroredStrategy()

@tf.function
def add_up():
    def replica():
        mine = tf.constant(index + 1)
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, mine)
    return strategy.run(replica)

total = strategy.experimental_local_results(add_up())[0]
print("group:", index, strategy.num_replicas_in_sync, int(total), flush=True)
"""

MPI = """
import os
names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "HOROVOD_RANK", "HOROVOD_SIZE")
print("group:", *(os.environ.get(name, "-") for name in names))
"""


def run_two(framework: str, python: str, program: str, folder: Path, **environ: str) -> list[str]:
    """Run a program as the two workers of a real agent; give the line that each prints about its group."""
    with cluster(folder, "--framework", framework, "--nproc_per_node", "2") as run:
        agent = run.agent(entry=[python, "-c", program], environ=environ)
        assert agent.wait(200) == 0, agent.output()
        return sorted(line for line in agent.output().splitlines() if "] group: " in line)


def test_tensorflow_adds_up_over_two_workers(tmp_path: Path) -> None:
    lines = run_two("tensorflow", interpreter("tensorflow"), TENSORFLOW, tmp_path)
    assert lines == ["[rank 0] group: 0 2 3", "[rank 1] group: 1 2 3"]


def test_jax_initializes_without_arguments_and_adds_up(tmp_path: Path) -> None:
    lines = run_two("jax", interpreter("jax"), JAX, tmp_path)
    assert lines == ["[rank 0] group: 0 2 3", "[rank 1] group: 1 2 3"]


def test_jax_ignores_the_slurm_job_that_the_agent_runs_in(tmp_path: Path) -> None:
    slurm = {f"SLURM_{name}": "1" for name in ("JOB_ID", "NTASKS", "PROCID", "LOCALID", "STEP_NUM_NODES")}
    lines = run_two("jax", interpreter("jax"), JAX, tmp_path, SLURM_STEP_NODELIST="nowhere", **slurm)
    assert lines == ["[rank 0] group: 0 2 3", "[rank 1] group: 1 2 3"]


@pytest.mark.parametrize(("framework", "horovod"), [("mpi", "- -"), ("horovod", "{rank} 2")])
def test_a_program_reads_mpi_ranks(framework: str, horovod: str, tmp_path: Path) -> None:
    lines = run_two(framework, sys.executable, MPI, tmp_path)
    assert lines == [f"[rank {rank}] group: {rank} 2 {horovod.format(rank=rank)}" for rank in range(2)]
