"""How a worker finds others: the file that its agent keeps, and waiting for it to change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lattice
from lattice import roles
from lattice.core.roles import FILE
from tests.waiting import patience

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write the file as the agent does."""
    path = tmp_path / "peers.json"

    def replaced(**listed: list[str]) -> None:
        fresh = tmp_path / "fresh"
        fresh.write_text(json.dumps(listed))
        fresh.replace(path)

    monkeypatch.setenv(FILE, str(path))
    monkeypatch.setattr(roles, "_listing", roles._Listing())
    replaced(learner=[], worker=["a:1", "b:2"])
    yield replaced


@pytest.mark.parametrize("path", [None, ""])
def test_nobody_is_there_outside_of_a_job(path: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FILE, raising=False)
    if path is not None:
        monkeypatch.setenv(FILE, path)
    assert lattice.peers("anybody") == []
    assert lattice.peers("anybody", at_least=3) == [], "nobody would ever come"


def test_changes_are_followed(write: Write) -> None:
    assert lattice.peers("worker") == ["a:1", "b:2"]
    assert lattice.peers("learner") == []
    write(learner=["c:3"], worker=["b:2"])
    assert lattice.peers("worker") == ["b:2"]
    assert lattice.peers("learner") == ["c:3"]


def test_what_is_given_is_the_callers(write: Write) -> None:
    lattice.peers("worker").clear()
    assert lattice.peers("worker") == ["a:1", "b:2"]


def test_it_is_read_only_when_it_changed(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    lattice.peers("worker")
    monkeypatch.setattr("json.load", None)
    for _ in range(1000):
        lattice.peers("worker")


def test_waiting_for_enough_of_them(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Event()
    monkeypatch.setattr("time.sleep", lambda seconds: looked.set())

    def come() -> None:
        looked.wait(patience(30))
        write(learner=["c:3"], worker=[])

    coming = threading.Thread(target=come)
    coming.start()
    assert lattice.peers("learner", at_least=1, timeout=30) == ["c:3"]
    assert looked.is_set(), "it was not there at first"
    coming.join()


def test_waiting_in_vain_says_who_is_there(write: Write) -> None:
    with pytest.raises(TimeoutError, match=r"'worker': 2 of at least 3 workers in 0\.1s: a:1, b:2\."):
        lattice.peers("worker", at_least=3, timeout=0.1)
    with pytest.raises(TimeoutError, match=r"'learner': 0 of at least 1 workers in 0s\."):
        lattice.peers("learner", at_least=1, timeout=0)


def test_a_role_that_the_job_does_not_have(write: Write) -> None:
    with pytest.raises(ValueError, match="no role 'evaluator'; it has learner, worker"):
        lattice.peers("evaluator")


def test_an_agent_that_is_gone_leaves_what_was_known(write: Write) -> None:
    assert lattice.peers("worker") == ["a:1", "b:2"]
    Path(os.environ[FILE]).unlink()
    assert lattice.peers("worker") == ["a:1", "b:2"]


def test_it_stays_a_function_and_brings_little_along() -> None:
    code = "import lattice.roles, sys; print(lattice.peers('x'), lattice.peers('x'), 'lattice.agent' in sys.modules)"
    environ = {**os.environ, "PYTHONPATH": str(Path(lattice.__file__).parent.parent), FILE: ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=True)
    assert done.stdout.split() == ["[]", "[]", "False"]
