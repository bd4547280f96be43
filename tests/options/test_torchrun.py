"""torchrun's own parser and ours agree on which words are options and which are the script's."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from lattice.options.parsing import TORCHRUN, parse
from lattice.options.table import OPTIONS
from tests.options.machines import Stub, spec

torch_run: Any = pytest.importorskip("torch.distributed.run")

SAMPLES = {
    "nnodes": "1:2",
    "nproc_per_node": "2",
    "rdzv_backend": "c10d",
    "rdzv_endpoint": "head:29500",
    "rdzv_conf": "is_host=1,join_timeout=60",
    "max_restarts": "3",
    "monitor_interval": "0.5",
    "start_method": "fork",
    "redirects": "3",
    "tee": "0:1,1:2",
    "local_ranks_filter": "0,1",
    "node_rank": "1",
    "master_port": "29501",
    "numa_binding": "node",
    "signals_to_handle": "SIGTERM,SIGUSR1",
    "shutdown_timeout": "10",
}


def flags() -> list[tuple[str, str, bool]]:
    """Every flag of torchrun as (flag, name, whether it takes a value)."""
    actions: list[argparse.Action] = torch_run.get_args_parser()._actions
    return [
        (flag, action.dest, action.nargs != 0)
        for action in actions
        for flag in action.option_strings
        if action.dest != "help"
    ]


@pytest.mark.parametrize(("flag", "name", "valued"), flags())
def test_every_flag_of_torchrun_is_read_as_torchrun_reads_it(flag: str, name: str, valued: bool) -> None:
    value = SAMPLES.get(name, "word")
    spellings = [[flag, value], [f"{flag}={value}"]] if valued else [[flag]]
    for words in spellings:
        line = [*words, "train.py", "--lr", "1", flag]
        theirs = torch_run.get_args_parser().parse_args(line)
        ours = parse(line, {}, TORCHRUN)
        assert ours.entry == (theirs.training_script, *theirs.training_script_args)
        assert ours.given[name].text == (value if valued else "1")


def test_every_flag_of_torchrun_has_a_row() -> None:
    assert {name for _, name, _ in flags()} <= {option.name for option in OPTIONS if option.torchrun}


def test_options_without_a_purpose_are_named_in_one_notice() -> None:
    words = ["--monitor_interval", "1", "--start_method=fork", "--run-path", "--numa_binding", "node"]
    (notice,) = spec(*words, "--rdzv_id", "a", "--rdzv_conf", "close_timeout=3", "sh", torchrun=True).notices
    for fact in ("--monitor_interval", "--start_method", "--run_path", "--numa_binding", "close_timeout in rdzv_conf"):
        assert fact in notice


def test_the_c10d_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.touch()
    words = "--nnodes 2 --nproc_per_node 8 --rdzv_id 1 --rdzv_backend c10d --rdzv_endpoint head:29500"
    line = words.split()
    other = spec(*line, str(script), torchrun=True)
    assert (other.framework, other.workers, other.run_id) == ("pytorch", 8, "1")
    assert other.store.backend == "embedded"
    assert other.store.endpoints == (("head", 29500),)
    assert other.store.serve is False
    assert other.command.argv == ("/opt/python", "-u", str(script))
    assert any("LATTICE_RDZV_PASSWORD" in notice for notice in other.notices)
    head = spec(*line, str(script), torchrun=True, machine=Stub(hosts=["head"]))
    assert head.store.serve is None


@pytest.mark.parametrize("torchrun", [True, False])
def test_the_static_line_needs_no_run_id(torchrun: bool) -> None:
    words = "--nnodes 2 --nproc_per_node 1 --master_addr 10.0.0.1 --master_port 29511"
    line = words.split()
    zero = spec(*line, "--node_rank", "0", "sh", torchrun=torchrun)
    one = spec(*line, "--node_rank", "1", "sh", torchrun=torchrun)
    assert zero.store.endpoints == one.store.endpoints == (("10.0.0.1", 29511),)
    assert (zero.store.serve, one.store.serve) == (True, False)
    assert (zero.node_rank, one.node_rank) == (0, 1)
    assert zero.run_id == one.run_id == "none-10.0.0.1-29511"


def test_one_node_needs_no_server_whatever_torchrun_calls_it() -> None:
    for line in ("", "--standalone", "--rdzv_backend c10d --rdzv_endpoint localhost:0", "--master_port 29501"):
        found = spec(*line.split(), "--nproc_per_node", "2", "sh", torchrun=True)
        assert found.store.backend == "memory"
        assert found.run_id == "made-up"


def test_two_nodes_on_this_machine_need_no_address() -> None:
    found = spec("--nnodes", "2", "--node_rank", "1", "sh", torchrun=True)
    assert found.store.endpoints == (("127.0.0.1", 29500),)
    assert any("--master_addr" in notice for notice in found.notices)


def test_variables_as_kubeflow_sets_them() -> None:
    found = spec(
        "sh",
        torchrun=True,
        PET_NNODES="2",
        PET_NPROC_PER_NODE="4",
        PET_NODE_RANK="1",
        PET_MASTER_ADDR="job-master-0",
        PET_MASTER_PORT="23456",
    )
    assert (found.policy.nodes.maximum, found.workers, found.node_rank) == (2, 4, 1)
    assert found.store.endpoints == (("job-master-0", 23456),)
    assert found.store.serve is False
    assert "PET_NODE_RANK" in found.strip
