"""What workers get: their arguments untouched, their own ranks, and nothing that would configure an agent inside."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.agents import TAG, Cluster, clean_environment

SHOWS = "import json, os, sys\nprint(json.dumps({'argv': sys.argv[1:], 'environ': dict(os.environ)}))"


def shown(
    alone: Cluster, *options: str, arguments: tuple[str, ...] = (), environ: Mapping[str, str] | None = None
) -> dict[str, Any]:
    agent = alone.agent(*options, entry=[alone.script(SHOWS), *arguments], environ=environ)
    assert agent.wait() == 0, agent.output()
    facts: dict[str, Any] = json.loads(alone.log(1, 0))
    return facts


def test_arguments_arrive_untouched(alone: Cluster) -> None:
    given = ("--lr", "1", "--nnodes", "7", "a b", '"quoted"', "$HOME", "", "é\udcff", "*", "--", "-m")
    assert shown(alone, arguments=given)["argv"] == list(given)


def test_generic_adds_only_names_of_lattice(alone: Cluster) -> None:
    environ = shown(alone)["environ"]
    added = {name for name in environ if name not in {*clean_environment(), TAG}}
    assert added and all(name.startswith("LATTICE_") for name in added), added
    assert {"LATTICE_RUN_ID", "LATTICE_ROUND", "LATTICE_RESTART_COUNT", "LATTICE_RANK"} <= added


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "PYTHONUNBUFFERED", "RANK", "MASTER_PORT"])
def test_generic_sets_nothing_else(alone: Cluster, name: str) -> None:
    assert name not in {
        key for key in shown(alone, "--nproc_per_node", "1")["environ"] if key not in clean_environment()
    }


def test_option_variables_do_not_reach_workers(alone: Cluster) -> None:
    options = {"LATTICE_MAX_RESTARTS": "3", "LATTICE_RDZV_ID": "mine", "PET_NNODES": "1", "LATTICE_ROLE": "r"}
    environ = shown(alone, environ={**options, "LATTICE_RDZV_PASSWORD": "secret"})["environ"]
    assert not set(environ) & {*options, "LATTICE_RDZV_PASSWORD"}
    assert "secret" not in environ.values()
    assert environ["LATTICE_RUN_ID"] == "mine"


def test_an_agent_inside_a_worker_has_a_run_of_its_own(alone: Cluster) -> None:
    inner = alone.script(SHOWS, "inner.py")
    outer = alone.script(f"""
import subprocess, sys
sys.exit(subprocess.run([sys.executable, "-m", "lattice.torch.run", {inner!r}]).returncode)
""")
    agent = alone.agent("--rdzv_id", "outer", "--max_restarts", "0", entry=[outer], environ={"LATTICE_NNODES": "1"})
    assert agent.wait() == 0, agent.output()
    line = next(line for line in alone.log(1, 0).splitlines() if "argv" in line)
    environ = json.loads(line[line.index("{") :])["environ"]
    assert environ["LATTICE_RUN_ID"] != "outer"
    assert environ["LATTICE_ROUND"] == "1"


def test_pytorch_workers_get_what_torchrun_gives(alone: Cluster) -> None:
    environ = shown(alone, "--framework", "pytorch", "--nproc_per_node", "1", "--max_restarts", "4")["environ"]
    assert environ["RANK"] == environ["LOCAL_RANK"] == environ["GROUP_RANK"] == "0"
    assert environ["WORLD_SIZE"] == environ["LOCAL_WORLD_SIZE"] == "1"
    assert environ["TORCHELASTIC_MAX_RESTARTS"] == "4"
    assert environ["TORCHELASTIC_USE_AGENT_STORE"] == "False"
    assert int(environ["MASTER_PORT"]) > 0
