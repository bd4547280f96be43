"""What agents say reaches the launcher as their log: all of it in files, what is news on the console."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lattice
from lattice.launching.handlers import Files, Printer, default_handlers

TWO: dict[str, Any] = {
    "hostnames": ["localhost"] * 2,
    "workers_per_host": 1,
    "backend": None,
    "framework": "generic",
}


class Heard(logging.Handler):
    """Keeps the words of agents, and does something for each of them."""

    def __init__(self, react: Callable[[str], None] = lambda text: None) -> None:
        super().__init__()
        self.words: list[tuple[int, str, str]] = []
        self._react = react

    def emit(self, record: logging.LogRecord) -> None:
        known: Any = record
        if known.local_rank is None:
            self.words.append((known.agent, record.levelname, record.getMessage()))
            self._react(record.getMessage())

    def of(self, agent: int) -> str:
        return "\n".join(text for who, _, text in self.words if who == agent)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LATTICE_LOG_DIR", str(tmp_path / "logs"))
    return tmp_path / "logs"


def agents_file(folder: Path, agent: str) -> str:
    (path,) = folder.glob(f"*-{agent}.log")
    return path.read_text()


def test_a_run_that_goes_well_prints_no_word_and_files_what_happened(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lattice.launch(print, ("hello",), progress=False, **TWO)
    assert capsys.readouterr() == ("[localhost:0] hello\n", "")
    for agent in ("localhost", "localhost#1"):
        text = agents_file(folder, agent)
        assert " INFO lattice: joining run 'launch-" in text
        assert " INFO lattice: round 1 starts: " in text
        assert text.splitlines()[-1].endswith("succeeded in round 1 (no restarts)")


def fail_once() -> None:
    if os.environ["LATTICE_ROUND"] == "1" and os.environ["LATTICE_RANK"] == "1":
        raise RuntimeError("once")
    if os.environ["LATTICE_ROUND"] == "1":
        time.sleep(600)


def test_a_restart_is_printed_for_the_first_agent_and_filed_for_all(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lattice.launch(fail_once, max_restarts=1, progress=False, **TWO)
    out = capsys.readouterr().out
    assert out.count("WARNING lattice: round 2 starts after rank 1") == 1
    assert out.count("recovered in") == 1
    assert "round 1" not in out and "stopping" not in out
    for agent in ("localhost", "localhost#1"):
        assert "round 2 starts after rank 1" in agents_file(folder, agent)
    assert "rank 1 on " in agents_file(folder, "localhost#1").partition("round 2")[0], "the failure itself"


def test_what_an_env_file_writes_is_told_by_every_agent(tmp_path: Path) -> None:
    file = tmp_path / "file.sh"
    file.write_text("echo module loaded\necho '\N{SNOWMAN} odd' >&2\nFOUND=yes\n")
    heard = Heard()
    result = lattice.launch(lambda: os.environ["FOUND"], env_file=file, log_handlers=[heard], **TWO)
    assert result.all() == ["yes", "yes"]
    for agent in (0, 1):
        assert (agent, "WARNING", "module loaded\n\N{SNOWMAN} odd") in heard.words


def test_why_workers_are_started_afresh_is_told(tmp_path: Path) -> None:
    heard = Heard()
    lattice.launch(lambda: None, preload="nothing_like_that", log_handlers=[heard], **TWO)
    assert "nothing_like_that" in heard.of(0)


def kill_agent_in_round_2() -> None:
    fail_once()
    if os.environ["LATTICE_RANK"] == "1":
        os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(600)


def test_the_last_words_of_an_agent_that_is_killed_are_not_lost() -> None:
    heard = Heard()
    with pytest.raises(lattice.AgentFailedError):
        lattice.launch(kill_agent_in_round_2, max_restarts=1, log_handlers=[heard], **TWO)
    assert "round 2 starts after rank 1" in heard.of(1)


def wait_for_file(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.01)


def touch_and_wait(asked: str, heard: str) -> None:
    Path(asked).touch()
    wait_for_file(heard)


def test_what_is_written_to_the_standard_error_of_an_agent_is_its_log_too(tmp_path: Path) -> None:
    asked, answered = tmp_path / "asked", tmp_path / "answered"
    python = tmp_path / "python"
    python.write_text(
        f"#!/bin/sh\n( while [ ! -e {asked} ]; do sleep 0.05; done; echo from outside >&2 ) &\n"
        f'exec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    heard = Heard(lambda text: answered.touch() if text == "from outside" else None)
    settings = {**TWO, "hostnames": ["localhost"]}
    lattice.launch(touch_and_wait, (str(asked), str(answered)), python=str(python), log_handlers=[heard], **settings)
    assert (0, "ERROR", "from outside") in heard.words


def test_an_agent_that_breaks_says_why(tmp_path: Path) -> None:
    # A module in its way: what no agent expects.
    broken = tmp_path / "python"
    code = "import lattice.launching.node as n; n.agent_spec = lambda *a: 1 / 0; n.main()"
    broken.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}"\n')
    broken.chmod(0o755)
    heard = Heard()
    with pytest.raises(lattice.AgentFailedError, match="ZeroDivisionError"):
        lattice.launch(print, python=str(broken), log_handlers=[heard], **{**TWO, "hostnames": ["localhost"]})
    assert "ZeroDivisionError" in heard.of(0)


def test_only_the_printer_leaves_out_routine(tmp_path: Path) -> None:
    printer, files = default_handlers({"LATTICE_LOG_DIR": str(tmp_path)})
    assert isinstance(printer, Printer) and isinstance(files, Files)
    for level, local_rank, printed in [(20, None, False), (30, None, True), (20, 0, True)]:
        record = logging.makeLogRecord({"levelno": level, "local_rank": local_rank})
        assert bool(printer.filter(record)) is printed
        assert files.filter(record)
