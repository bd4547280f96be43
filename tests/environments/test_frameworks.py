"""Real frameworks form real groups from nothing but our variables, on ports that are still reserved."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lattice.core.topology import Assignment, RosterEntry
from lattice.environments import environment
from lattice.environments.identity import identity
from lattice.process.ports import ReservedPorts

# The first run installs a framework; after that these take seconds.
pytestmark = pytest.mark.timeout(1800)

ROOT = Path(__file__).parents[2]
ADDRESS = "127.0.0.1"

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


def interpreter(framework: str) -> str:
    """Make the framework's own virtual environment, or skip with the reason."""
    made = subprocess.run(
        [ROOT / "scripts" / "framework_venv.sh", framework],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode == 0:
        return made.stdout.strip()
    reason = f"{framework} can't be installed here: {made.stderr.strip()[-500:]}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(params=["", ADDRESS], ids=["all addresses", "one address"])
def reserved(request: pytest.FixtureRequest) -> Iterator[tuple[int, ...]]:
    """Hold two ports as an agent does, until the workers have ended."""
    with ReservedPorts(2, request.param) as held:
        yield held.ports


def run_two(framework: str, python: str, program: str, ports: tuple[int, ...]) -> list[str]:
    """Run a program as two workers on two nodes of one; give the line that each prints about its group."""
    chosen = environment(framework)
    members = tuple(RosterEntry(str(n), n, n, 1, "host", ADDRESS, (ports[n],)) for n in range(2))
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OMPI_", "TF_", "JAX_"))}
    with ExitStack() as stack:
        workers = []
        for member in members:
            assignment = Assignment("run", 1, 0, 0, "default", member, 2, 2, ADDRESS, ports[0], members)
            variables = {
                **inherited,
                **chosen.defaults(1, inherited),
                **identity(assignment, 0),
                **chosen.variables(assignment, 0, "/dev/null"),
            }
            worker = subprocess.Popen(
                [python, "-c", program], env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            stack.callback(worker.wait)
            stack.callback(worker.kill)
            workers.append(worker)
        lines = []
        for worker in workers:
            output, errors = worker.communicate(timeout=200)
            assert worker.returncode == 0, errors
            lines += [line for line in output.splitlines() if line.startswith("group:")]
        return lines


@pytest.mark.parametrize("reserved", [""], indirect=True)
def test_tensorflow_adds_up_over_two_workers(reserved: tuple[int, ...]) -> None:
    lines = run_two("tensorflow", interpreter("tensorflow"), TENSORFLOW, reserved)
    assert lines == ["group: 0 2 3", "group: 1 2 3"]


def test_jax_initializes_without_arguments_and_adds_up(reserved: tuple[int, ...]) -> None:
    assert run_two("jax", interpreter("jax"), JAX, reserved) == ["group: 0 2 3", "group: 1 2 3"]


@pytest.mark.parametrize("reserved", [""], indirect=True)
def test_jax_ignores_the_slurm_job_that_the_agent_runs_in(
    reserved: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("JOB_ID", "NTASKS", "PROCID", "LOCALID", "STEP_NUM_NODES"):
        monkeypatch.setenv(f"SLURM_{name}", "1")
    monkeypatch.setenv("SLURM_STEP_NODELIST", "nowhere")
    assert run_two("jax", interpreter("jax"), JAX, reserved) == ["group: 0 2 3", "group: 1 2 3"]


@pytest.mark.parametrize("reserved", [""], indirect=True)
@pytest.mark.parametrize(("framework", "horovod"), [("mpi", "- -"), ("horovod", "{rank} 2")])
def test_a_program_reads_mpi_ranks(framework: str, horovod: str, reserved: tuple[int, ...]) -> None:
    lines = run_two(framework, sys.executable, MPI, reserved)
    assert lines == [f"group: {rank} 2 {horovod.format(rank=rank)}" for rank in range(2)]
