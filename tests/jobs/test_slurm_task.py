"""What SLURM runs on a node: which node of the job it is, and whether it comes too late."""

from __future__ import annotations

from pathlib import Path

import pytest

from lattice.jobs import slurm_task
from lattice.jobs.desk import Desk, desk
from lattice.jobs.slurm_task import main


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The nodes whose agents would have run."""
    found: list[int] = []

    def run(place: Desk, host: str, endpoint: str, asked: list[int]) -> int:
        found.append(place.index)
        return 0

    monkeypatch.setattr(slurm_task, "_run", run)
    for index in range(4):
        argv = ["--rdzv_backend", "etcd" if index == 3 else "embedded"]
        desk(tmp_path, "j-1", index).create({"argv": argv, "environment": {}}, None)
    desk(tmp_path, "j-1", 0).note("../meeting", {"endpoint": "h:1"})
    return found


@pytest.mark.parametrize(
    ("words", "task", "index"), [((), "1", 1), (("2",), "0", 2), (("0,1,3",), "2", 3), (("0,1,3",), "0", 0)]
)
def test_each_task_is_one_node(
    words: tuple[str, ...], task: str, index: int, ran: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_PROCID", task)
    assert main([str(tmp_path), "j-1", *words], []) == 0
    assert ran == [index]
    assert desk(tmp_path, "j-1", index).noted("ended") == {"code": 0}


def test_a_node_whose_turn_comes_after_the_end_does_not_begin(
    ran: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_PROCID", "0")
    desk(tmp_path, "j-1", 0).note("ended", {"code": 0})
    assert main([str(tmp_path), "j-1", "2"], []) == 0
    assert (ran, desk(tmp_path, "j-1", 2).noted("ended")) == ([], {"code": 0})
    assert main([str(tmp_path), "j-1", "3"], []) == 0
    assert ran == [3], "a store of its own outlives node 0"


def test_a_node_that_is_asked_to_leave_while_it_waits_for_the_store_ends(
    ran: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_PROCID", "1")
    (tmp_path / "nodes" / "j-1" / "meeting.json").unlink()
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path), "j-1"], [slurm_task.LEAVE])
    assert (ended.value.code, ran) == (143, [])
