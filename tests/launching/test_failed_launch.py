"""What a launch that failed tells besides its exception, and how a handle tells of a launch that runs."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import lattice
from lattice.launching.blame import unseen
from lattice.launching.kept import LogLine

TWO: dict[str, Any] = {
    "hostnames": ["localhost"] * 2,
    "workers_per_host": 2,
    "backend": None,
    "framework": "generic",
    "progress": False,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LATTICE_LOG_DIR", str(tmp_path / "logs"))
    return tmp_path / "logs"


def fail_at(unlucky: int, how: str) -> None:
    import logging

    if os.environ["LATTICE_RANK"] != str(unlucky):
        time.sleep(600)
    print("loading")
    logging.getLogger("mine").warning("this looks bad")
    if how == "kill the agent":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    if how == "exit":
        print("cannot go on", file=sys.stderr)
        os._exit(5)
    raise ValueError("bad \N{SNOWMAN}")


@pytest.mark.parametrize(("how", "kind"), [("raise", ValueError), ("exit", lattice.WorkerFailedError)])
def test_another_worker_that_fails_is_shown_with_what_the_exception_does_not_say(
    how: str, kind: type[Exception], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(kind) as caught:
        lattice.launch(fail_at, (3, how), **TWO)
    heading, *lines = capsys.readouterr().out.splitlines()
    (file,) = folder.glob("*-localhost#1[[]1].log")
    assert heading == f"[localhost:1] failed; the end of {file}:"
    told = {"[localhost:1] loading", "[localhost:1] WARNING mine: this looks bad"}
    assert len(lines) == 2 and set(lines) == told, "what is printed and what is logged come by two ways"
    (note,) = [note for note in caught.value.__notes__ if "logs of all" in note]
    pattern = note.rpartition(" ")[2]
    assert set(folder.glob(Path(pattern).name)) == set(folder.iterdir()), "where the logs are is said once"


def test_the_first_worker_was_printed_already(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(lattice.WorkerFailedError):
        lattice.launch(fail_at, (0, "exit"), **TWO)
    out = capsys.readouterr().out
    assert "[localhost:0] loading\n" in out and out.count("loading") == 1 and "failed; the end" not in out


def test_an_agent_that_is_lost_is_shown_with_its_log(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(lattice.AgentFailedError):
        lattice.launch(fail_at, (2, "kill the agent"), **TWO)
    out = capsys.readouterr().out
    assert f"[localhost] failed; the end of {folder}/" in out
    assert "[localhost] INFO lattice: round 1 starts: node 1 of 2" in out


def test_a_user_with_handlers_of_its_own_is_told_nothing_more(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="bad") as caught:
        lattice.launch(fail_at, (3, "raise"), log_handlers=[], **TWO)
    assert capsys.readouterr() == ("", "")
    assert len(caught.value.__notes__) == 1, "the traceback"


def line(text: str) -> LogLine:
    return LogLine("a", 0, "stdout", text)


def test_only_the_last_lines_that_are_nowhere_else() -> None:
    shown = 'ValueError: bad\n  File "x.py", line 3\n'
    assert unseen([line("one"), line('File "x.py", line 3'), line("two"), line("ValueError: bad")], shown) == [
        "one",
        "two",
    ]
    assert unseen([line(""), line("ValueError: bad")], shown) == []
    assert unseen([line(str(number)) for number in range(100)], shown) == [str(number) for number in range(80, 100)]
