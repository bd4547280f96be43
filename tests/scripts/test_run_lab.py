"""A failed test is run once more, alone: one that passes then is named, one that fails twice fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import run_lab
from scripts.run_lab import AT_MOST, Failures
from tests.agents import ROOT
from tests.waiting import patience

FAILS_AT_FIRST = """\
import pytest
from pathlib import Path

def first_time(name):
    tried = Path(name)
    known = tried.exists()
    tried.touch()
    return not known

def test_late():
    print("a word of the first try")
    assert not first_time("late"), "too late this time"

@pytest.fixture
def tidied():
    yield
    assert not first_time("tidy"), "something is left"

def test_tidy(tidied):
    pass

def test_wrong():
    assert 1 == 2
"""


def test_real_tests_are_run_once_more(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p tests.failures -p no:cacheprovider\n")
    (tmp_path / "test_it.py").write_text(FAILS_AT_FIRST)
    variables = {"PYTHONPATH": f"{ROOT}:{ROOT}/src", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "scripts.run_lab", "--once_more", "."],
        cwd=tmp_path,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=patience(120),
        check=False,
    )
    assert done.returncode == 1, done.stdout
    for line in (
        "UNSTEADY test_it.py::test_late",
        "UNSTEADY test_it.py::test_tidy",
        "FAILED TWICE test_it.py::test_wrong",
    ):
        assert f"\n{line}\n" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()[-4:-1]]
    assert rows[0] == ["test_it.py::test_wrong", "failed", "twice", "see", "above"]
    assert rows[1] == ["test_it.py::test_late", "UNSTEADY", ".cache/unsteady/test_it.py_test_late.log"]
    assert rows[2][0] == "test_it.py::test_tidy"
    log = (tmp_path / rows[1][2]).read_text()
    assert log.startswith("test_it.py::test_late\ncall failed after ")
    assert "too late this time" in log and "a word of the first try" in log
    assert "\nteardown failed after " in (tmp_path / rows[2][2]).read_text()


Sessions = dict[str, tuple[int, Failures]]


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Sessions:
    """What pytest finds: by the test that is run alone, and by "tests" for the first session."""
    found: Sessions = {}
    monkeypatch.setattr(run_lab, "run_session", lambda words: found[words[-1]])
    return found


def run(folder: Path, *words: str) -> int:
    return run_lab.main([*words, "--logs", str(folder), "tests"])


def test_run_passes_if_all_that_failed_pass_alone(
    sessions: Sessions, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sessions["tests"] = (1, Failures({"a": "why", "b": "why"}, []))
    sessions["a"] = sessions["b"] = (0, Failures({}, []))
    assert run(tmp_path, "--once_more") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 failed twice, 2 unsteady")
    assert (tmp_path / "a.log").read_text() == "a\nwhy"


def test_nothing_is_run_again_unless_asked(sessions: Sessions, tmp_path: Path) -> None:
    sessions["tests"] = (1, Failures({"a": "why"}, []))
    assert run(tmp_path) == 1


@pytest.mark.parametrize(
    ("code", "failures"),
    [
        (1, Failures({"a": "why"}, ["skipped in CI: no SLURM"])),
        (1, Failures({"a": "why"}, ["tests/test_broken.py"])),
        (1, Failures({}, [])),
        (2, Failures({"a": "why"}, [])),
        (1, Failures({f"test {i}": "why" for i in range(AT_MOST + 1)}, [])),
    ],
    ids=["unexpected skip", "file that cannot be imported", "no failed test", "broken off", "too many"],
)
def test_what_is_not_a_failed_test_fails_at_once(
    sessions: Sessions, tmp_path: Path, code: int, failures: Failures
) -> None:
    sessions["tests"] = (code, failures)
    assert run(tmp_path, "--once_more") == code


def test_run_without_failures_passes(sessions: Sessions, tmp_path: Path) -> None:
    sessions["tests"] = (0, Failures({}, []))
    assert run(tmp_path, "--once_more") == 0
