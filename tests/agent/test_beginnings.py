"""Odd ways to be started: without a console, in a folder that is gone, as the first process, inside another agent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents import SCRIPTED, Cluster, clean_environment, processor_time
from tests.waiting import eventually, patience

CLOSED = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]


def test_a_console_that_was_closed_from_the_start(alone: Cluster) -> None:
    program = alone.script("""
import os, sys
for number in range(1000):
    print("line", number)
sys.exit(0 if os.environ["LATTICE_ROUND"] == "3" else 1)
""")
    agent = alone.agent("--nproc_per_node", "2", "--max_restarts", "2", entry=[program], prefix=CLOSED)
    assert agent.wait() == 0
    assert len(agent.events("round started")) == 3
    assert alone.log(3, 1).count("line") == 1000


def test_a_working_directory_that_is_gone(alone: Cluster, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    vanish = ["sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', str(tmp_path / "gone")]
    agent = alone.agent(prefix=vanish)
    assert agent.wait() == 2
    assert "Traceback" not in agent.output()


def test_as_the_first_process_of_a_container(alone: Cluster) -> None:
    namespace = ["unshare", "--pid", "--fork", "--kill-child"]
    tried = subprocess.run([*namespace, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"the lab needs a process namespace, which cannot be made here: {tried.stderr.strip()}")
    agent = alone.agent("--nproc_per_node", "2", "--max_restarts", "1", prefix=namespace)
    alone.round_of(2)
    alone.tell("exit-1-0", 1)
    alone.round_of(2, after=1)
    alone.tell("exit", 3)
    assert agent.wait() == 3


def test_an_agent_inside_a_worker_goes_with_it(alone: Cluster) -> None:
    inner = [sys.executable, "-m", "lattice.torch.run", "--nproc_per_node", "2", SCRIPTED, str(alone.said)]
    agent = alone.agent("--no_python", entry=inner)
    alone.round_of(2)
    assert len(alone.descendants()) >= 5
    agent.kill()
    eventually(lambda: not alone.descendants())


def test_workers_that_end_at_once(alone: Cluster) -> None:
    agent = alone.agent("--no_python", "--nproc_per_node", "8", entry=["true"])
    assert agent.wait() == 0


def test_an_idle_agent_hardly_uses_the_processor(alone: Cluster) -> None:
    agent = alone.agent("--nproc_per_node", "2", entry=[alone.script("import time\ntime.sleep(4)")])
    eventually(lambda: agent.events("workers started"))
    before = processor_time(agent.pid)
    eventually(lambda: agent.events("worker exited"))
    assert processor_time(agent.pid) - before < 0.4, "it is busy while nothing happens"
    assert agent.wait() == 0


def test_a_port_that_rank_0_cannot_have_costs_no_restart(alone: Cluster) -> None:
    program = alone.script("""
import os, socket
import torch.distributed as dist
if os.environ["LATTICE_ROUND"] == "1" and os.environ["RANK"] == "0":
    taken = socket.create_server(("", int(os.environ["MASTER_PORT"])))
dist.init_process_group("gloo")
dist.barrier()
dist.destroy_process_group()
print("formed with restart count", os.environ["LATTICE_RESTART_COUNT"])
""")
    agent = alone.agent("--framework", "pytorch", entry=[program])
    assert agent.wait(120) == 0, agent.output()
    assert "formed with restart count 0" in agent.output()
    assert [line["restarts"] for line in agent.events("round started")] == [0, 0]


def test_the_agent_imports_no_framework_and_no_pickle_reader() -> None:
    line = "import lattice.agent.run, lattice.cli, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", line],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=patience(60),
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"torch", "numpy", "jax", "tensorflow", "asyncio", "multiprocessing", "pickle"}
    assert not loaded & {"lattice.agent.directory", "lattice.agent.job", "lattice.core.directory", "tempfile"}
