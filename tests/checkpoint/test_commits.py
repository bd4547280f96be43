"""When a save counts as committed: once the log in the storage has it, and not before."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lattice.checkpoint import Checkpointer, client
from tests.checkpoint.looking import steps
from tests.waiting import eventually, patience


@pytest.fixture(autouse=True)
def no_keeper(no_leaks: None) -> Iterator[None]:
    """End what writes the checkpoints of this process, which else stays until its end."""
    yield
    client._finish()


@pytest.fixture
def missing(tmp_path: Path) -> Path:
    """A folder that cannot be written to, not even by root, until what it leads to is there."""
    (tmp_path / "saved").symlink_to(tmp_path / "elsewhere")
    return tmp_path / "saved"


@contextmanager
def unblocked_at_the_end(missing: Path) -> Iterator[None]:
    """Let all be written when a test has failed, too: a checkpointer waits for that when it is closed."""
    try:
        yield
    finally:
        missing.readlink().mkdir(exist_ok=True)


def test_a_save_is_committed_once_the_log_has_it(missing: Path) -> None:
    with Checkpointer(missing) as one, unblocked_at_the_end(missing):
        assert one.committed_step is None
        assert one.save(1, "first") and one.save(2, "second")
        assert not one.wait(0.5)
        assert one.committed_step is None, "only memory has them"
        missing.readlink().mkdir()
        eventually(lambda: one.committed_step == 2)
        assert steps(str(missing))[0] == 2
        one.save(3, "third")
        assert one.wait(patience(30)) and one.committed_step == 3, "who waited until all is written has been told"


def test_a_refused_save_is_never_committed(tmp_path: Path) -> None:
    with Checkpointer(tmp_path) as one, Checkpointer(tmp_path) as other:
        one.restore("")
        one.save(1, "first")
        assert one.wait(patience(30))
        assert other.restore("") == ("first", 1) and other.committed_step == 1
        one.save(2, "second")
        assert one.wait(patience(30)) and one.committed_step == 1
        other.save(2, "another second")
        assert other.wait(patience(30)) and (one.committed_step, other.committed_step) == (1, 2)


def test_what_is_restored_from_memory_is_committed_once_the_log_has_it(missing: Path) -> None:
    with Checkpointer(missing) as one, Checkpointer(missing) as heir, unblocked_at_the_end(missing):
        one.save(1, "first")
        assert heir.restore("") == ("first", 1)
        assert heir.committed_step is None
        missing.readlink().mkdir()
        eventually(lambda: heir.committed_step == 1)
        heir.save(2, "second")
        eventually(lambda: heir.committed_step == 2)


def test_a_metric_that_is_no_number_is_no_reason_to_look_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Checkpointer(tmp_path) as one, Checkpointer(tmp_path) as other:
        one.save(1, "first", metric=math.nan)
        assert one.wait(patience(30))
        monkeypatch.setattr(other._client, "held", list)  # as on another node
        assert other.restore("") == ("first", 1)


def test_a_keeper_that_dies_is_replaced_and_the_next_one_reports_the_commit(missing: Path) -> None:
    with Checkpointer(missing) as one, unblocked_at_the_end(missing):
        one.save(1, "first")
        assert not one.wait(0.5)
        process = client._own[0][2]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        missing.readlink().mkdir()
        eventually(lambda: one.committed_step == 1)  # without another save


def test_what_the_round_before_adds_while_another_one_takes_over_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Checkpointer(tmp_path) as one, Checkpointer(tmp_path) as other:
        one.restore("")
        one.save(1, "first")
        assert one.wait(patience(30))
        create: Callable[[str, bytes], bool] = other._storage.create

        def create_late(name: str, data: bytes) -> bool:
            monkeypatch.undo()
            one.save(2, "second")
            assert one.wait(patience(30)) and one.committed_step == 2
            return create(name, data)

        monkeypatch.setattr(other._storage, "create", create_late)
        monkeypatch.setattr(other._client, "held", list)  # as on another node
        monkeypatch.setattr(other._client, "fetch", lambda folder: [])
        assert other.restore("") == ("second", 2) and other.committed_step == 2
