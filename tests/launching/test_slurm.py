"""SLURM's lists and counts."""

from __future__ import annotations

import pytest

from lattice.errors import UsageError
from lattice.launching.slurm import allocation, expand, parse_ports, port_range, repeated

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_CPUS_PER_NODE": "8,4"}


@pytest.mark.parametrize(
    ("nodes", "names"),
    [
        ("a", "a"),
        ("a,b", "a b"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[1,3-4]-ib,login", "n1-ib n3-ib n4-ib login"),
        ("r[0-1]n[1-2]", "r0n1 r0n2 r1n1 r1n2"),
        ("n[098-101]", "n098 n099 n100 n101"),
    ],
)
def test_lists_of_nodes(nodes: str, names: str) -> None:
    assert " ".join(expand(nodes)) == names


@pytest.mark.parametrize("nodes", ["n[1", "n1]", "n[]", "n[2-1]", "n[a-b]", "n[1-]"])
def test_lists_that_make_no_sense(nodes: str) -> None:
    with pytest.raises(UsageError, match="makes no sense"):
        expand(nodes)


def test_counts_per_node() -> None:
    assert repeated("2(x3),1") == (2, 2, 2, 1)
    with pytest.raises(UsageError, match="make no sense"):
        repeated("two")


@pytest.mark.parametrize(
    ("variables", "workers"),
    [
        ({}, (8, 4)),
        ({"SLURM_TASKS_PER_NODE": "8,4"}, (8, 4)),
        ({"SLURM_TASKS_PER_NODE": "2,1", "SLURM_NTASKS": "3"}, (2, 1)),
        ({"SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_NTASKS_PER_NODE": "1"}, (1, 1)),
        ({"SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_NTASKS_PER_NODE": "1", "SLURM_GPUS_ON_NODE": "4"}, (4, 4)),
        ({"SLURM_TASKS_PER_NODE": "2(x2)", "SLURM_NTASKS_PER_NODE": "2", "SLURM_GPUS_ON_NODE": "4"}, (2, 2)),
        ({"SLURM_GPUS_PER_NODE": "a100:2,v100:1", "SLURM_GPUS_ON_NODE": "2"}, (3, 3)),
        ({"SLURM_JOB_GPUS": "0,1"}, (2, 2)),
        ({"SLURM_JOB_CPUS_PER_NODE": "8"}, (1, 1)),
    ],
)
def test_workers_of_an_allocation(variables: dict[str, str], workers: tuple[int, ...]) -> None:
    found = allocation({**JOB, **variables})
    assert found is not None
    assert (found.job, found.hosts, found.workers, found.here) == ("7", ("n1", "n2"), workers, None)


def test_outside_of_an_allocation() -> None:
    assert allocation({}) is None
    assert allocation({"SLURM_JOB_ID": "7"}) is None


@pytest.mark.parametrize(
    ("configuration", "ports"),
    [
        ("SrunEpilog = (null)\nSrunPortRange           = 60001-60010\nSrunProlog = (null)", range(60001, 60011)),
        ("SrunPortRange           = 0-0\n", None),
        ("slurm_load_ctl_conf error: Unable to contact slurm controller", None),
    ],
)
def test_ports_that_nodes_can_reach(configuration: str, ports: range | None) -> None:
    assert parse_ports(configuration) == ports


def test_without_slurm_all_ports_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert port_range() is None
