"""What a keeper does with parts, on a storage that does what the test wants."""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from lattice.checkpoint import log, shelf
from lattice.checkpoint.history import Opened, Policy, folder_of
from lattice.checkpoint.memory import Arena, Kept
from lattice.checkpoint.shelf import Part, Shelf
from lattice.checkpoint.storage.folder import Folder
from tests.checkpoint.looking import steps
from tests.waiting import eventually, patience


class Gate(Folder):
    """A folder whose files can be written once the gate is open."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.open = threading.Event()
        self.asked = threading.Event()
        self.fails: Exception | None = None

    def write(self, name: str, data: memoryview) -> None:
        self.asked.set()
        assert self.open.wait(patience(30))
        if self.fails is not None:
            raise self.fails
        super().write(name, data)


class Held:
    """A shelf, and parts that are told apart by their steps."""

    def __init__(self, where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.storage = Gate(str(where))
        monkeypatch.setattr(shelf, "open_storage", lambda where: self.storage)
        self.said: list[str] = []
        self.released: list[int] = []
        self.committed: list[int | str] = []
        self.shelf = Shelf(str(where), self.said.append, lambda: None)
        self._number = 0

    def add(self, step: int, token: str = "old", rank: int = 0, world: int = 1, opened: bool = True) -> str:
        arena = Arena(1)
        arena.begin(f"file-{rank}")
        arena.write(b"data")
        kept = Kept(os.dup(arena.descriptor), arena.seal())
        arena.close()
        self._number += 1
        facts: dict[str, Any] = {
            "folder": folder_of(step, token, 0),
            "step": step,
            "rank": rank,
            "world": world,
            "metric": None,
            "token": token,
            "run": "run",
            "round": 1,
            "restarts": 0,
            "opened": opened,
            "policy": asdict(Policy()),
            "at": float(step),
            "stall": 0.1,
            "number": self._number,
            "worker": self,
        }
        release, report = (lambda: self.released.append(step)), (lambda: self.committed.append(step))
        self.shelf.add(Part(facts, kept, release, report))
        return str(facts["folder"])

    def adopt(self, folder: str, heir: dict[str, Any]) -> None:
        self.shelf.adopt(folder, heir, lambda: self.committed.append(f"{folder} for {heir['token']}"))


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may_leak: None) -> Held:
    return Held(tmp_path / "saved", monkeypatch)


def opened(held: Held, token: str, round: int) -> None:
    log.add(held.storage, Opened(token, "run", round, 0.0))


def heir(token: str, round: int, *, opened: bool) -> dict[str, Any]:
    return {"token": token, "run": "run", "round": round, "restarts": 1, "opened": opened}


def test_what_another_round_goes_on_from_is_added_on_its_behalf(held: Held, tmp_path: Path) -> None:
    opened(held, "old", 1)
    folder = held.add(5)
    held.storage.asked.wait(patience(30))
    opened(held, "new", 2)
    held.adopt(folder, heir("new", 2, opened=True))
    held.storage.open.set()
    eventually(held.shelf.idle)
    assert steps(str(tmp_path / "saved")) == [5] and not held.said
    assert held.committed == [f"{folder} for new"], "the heir is told"


def test_what_nobody_goes_on_from_is_refused_and_can_still_be_adopted(held: Held, tmp_path: Path) -> None:
    opened(held, "old", 1)
    folder = held.add(5)
    opened(held, "new", 2)
    held.storage.open.set()
    eventually(held.shelf.idle)
    assert steps(str(tmp_path / "saved")) == [] and "round 2 of run 'run' has taken over" in held.said[0]
    assert held.shelf.held()[0]["refused"] and not held.committed
    held.adopt(folder, heir("new", 2, opened=True))
    eventually(lambda: steps(str(tmp_path / "saved")) == [5])
    eventually(lambda: held.committed == [f"{folder} for new"])


@pytest.mark.parametrize("kind", [OSError, ValueError])
def test_only_the_newest_of_each_rank_is_held_while_nothing_can_be_written(
    kind: type[Exception], held: Held, tmp_path: Path
) -> None:
    opened(held, "old", 1)
    for step in (1, 2, 3):
        held.add(step, rank=0, world=2)
        held.add(step, rank=1, world=2)
    held.storage.fails = kind("it does not work")
    held.storage.open.set()
    eventually(lambda: sorted(held.released) == [1, 1, 2, 2])
    assert "it does not work" in held.said[0]
    held.storage.fails = None
    eventually(lambda: steps(str(tmp_path / "saved")) == [3])
    eventually(lambda: "are written to" in held.said[-1])
    eventually(held.shelf.idle)
    assert held.committed == [3], "of the others the log knows nothing"


def test_a_checkpoint_is_complete_when_the_parts_of_all_ranks_are(held: Held, tmp_path: Path) -> None:
    held.storage.open.set()
    opened(held, "old", 1)
    held.add(1, rank=0, world=2)
    eventually((tmp_path / "saved" / folder_of(1, "old", 0) / "part_0.json").exists)
    assert steps(str(tmp_path / "saved")) == [] and not held.shelf.idle() and not held.committed
    elsewhere = Held(tmp_path / "saved", pytest.MonkeyPatch())  # the keeper of another node
    elsewhere.storage.open.set()
    elsewhere.add(1, rank=1, world=2)
    eventually(lambda: steps(str(tmp_path / "saved")) == [1])
    (entry,) = log.read(held.storage).saved
    assert sorted(entry.files) == ["file-0", "file-1"]
    eventually(held.shelf.idle)
    assert (held.committed, elsewhere.committed) == ([1], []), "rank 0 is told, once"


def test_a_place_that_nobody_opened_is_opened_by_the_first_checkpoint(held: Held, tmp_path: Path) -> None:
    held.storage.open.set()
    held.add(1, opened=False)
    held.add(2, opened=False)
    eventually(lambda: steps(str(tmp_path / "saved")) == [2, 1])
    assert [type(entry).__name__ for _, entry in sorted(log.read(held.storage).entries.items())] == [
        "Opened",
        "Saved",
        "Saved",
    ]
    eventually(lambda: held.released == [1])


def test_a_round_takes_over_before_it_writes_so_that_nobody_removes_its_folder(held: Held, tmp_path: Path) -> None:
    opened(held, "another", 1)
    folder = held.add(1, opened=False)
    assert held.storage.asked.wait(patience(30))
    now = log.read(held.storage)
    assert now.opening is not None and now.opening.token == "old"
    assert now.stray([folder], "another") == []
    held.storage.open.set()
    eventually(lambda: steps(str(tmp_path / "saved")) == [1])


def test_a_round_that_is_over_writes_nothing(held: Held, tmp_path: Path) -> None:
    opened(held, "new", 2)
    folder = held.add(1, opened=False)
    eventually(held.shelf.idle)
    assert "round 2 of run 'run' has taken over" in held.said[0]
    assert not (tmp_path / "saved" / folder).exists() and held.shelf.held()[0]["refused"]


def test_a_part_that_is_let_go_while_it_is_written_is_not_listed(held: Held, tmp_path: Path) -> None:
    opened(held, "old", 1)
    older = held.add(1, rank=1, world=2)
    assert held.storage.asked.wait(patience(30))
    held.shelf.problem = "it does not work"  # so that only the newest is held
    newer = held.add(2, rank=1, world=2)
    assert held.released == [1], "its memory may change from here on"
    held.storage.open.set()
    eventually((tmp_path / "saved" / newer / "part_1.json").exists)
    assert not (tmp_path / "saved" / older / "part_1.json").exists()


def test_memory_that_waits_for_another_node_is_given_back_if_there_is_no_other(held: Held, tmp_path: Path) -> None:
    held.storage.open.set()
    opened(held, "old", 1)
    first, second = (held.add(step, rank=0, world=2) for step in (1, 2))
    eventually((tmp_path / "saved" / second / "part_0.json").exists)
    held.shelf.give_back(held)
    assert held.released == [1]
    assert [found["ranks"] for found in held.shelf.held()] == [[], [0]] and not held.shelf.parts(first)
    elsewhere = Held(tmp_path / "saved", pytest.MonkeyPatch())
    elsewhere.storage.open.set()
    elsewhere.add(1, rank=1, world=2)
    eventually(lambda: steps(str(tmp_path / "saved")) == [1])
    elsewhere.add(2, rank=1, world=2)
    eventually(lambda: steps(str(tmp_path / "saved")) == [2, 1])
    eventually(held.shelf.idle)
    assert held.released == [1], "once"


def test_a_round_that_goes_on_from_memory_takes_over_under_its_own_name(held: Held, tmp_path: Path) -> None:
    folder = held.add(5, opened=False)
    assert held.storage.asked.wait(patience(30))
    held.adopt(folder, heir("new", 2, opened=False))
    held.storage.open.set()
    eventually(lambda: steps(str(tmp_path / "saved")) == [5])
    now = log.read(held.storage).opening
    assert now is not None
    assert (now.token, now.run, now.round, now.restarts, now.source) == ("new", "run", 2, 1, folder)


def test_it_is_known_of_a_round_that_it_had_taken_over(held: Held) -> None:
    held.add(5, opened=True)
    (found,) = held.shelf.held()
    assert found["opened"] and (found["run"], found["round"]) == ("run", 1)


def test_what_was_asked_for_can_be_read_although_it_is_let_go_meanwhile(held: Held) -> None:
    held.storage.open.set()
    opened(held, "old", 1)
    folder = held.add(1)
    eventually(held.shelf.idle)
    ((table, lent),) = held.shelf.parts(folder)
    held.shelf.give_back(held)
    assert held.released == [1]
    with contextlib.closing(Kept(lent, table)) as kept:
        assert kept.files


def test_the_heir_of_a_checkpoint_that_the_log_has_is_told_at_once(held: Held) -> None:
    held.storage.open.set()
    opened(held, "old", 1)
    folder = held.add(1)
    eventually(held.shelf.idle)
    held.adopt(folder, heir("new", 2, opened=True))
    assert held.committed == [1, f"{folder} for new"]
