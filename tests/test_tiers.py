"""The two tiers, and the one factor that all deadlines of tests scale with."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import ROOT
from tests.waiting import VARIABLE, eventually, patience

PROJECT = """\
import pytest
from tests.tiers import require_lab_tier

def test_plain():
    pass

@pytest.mark.lab
def test_marked():
    require_lab_tier("SLURM")

def test_not_marked():
    require_lab_tier("SLURM")

@pytest.mark.long
def test_long():
    pass

@pytest.mark.soak
def test_soak():
    pass
"""
SLOW = """\
import pytest
import time

@pytest.mark.timeout(0.5)
def test_slow():
    time.sleep(1)
"""


def run(folder: Path, *words: str, text: str = PROJECT, **variables: str) -> str:
    plugins = "-p xdist -p pytest_timeout -p tests.tiers -p tests.timeouts -p no:cacheprovider"
    (folder / "pytest.ini").write_text(f"[pytest]\naddopts = {plugins}\ntimeout = 300\nmarkers =\n lab\n long\n soak\n")
    (folder / "test_it.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/src", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables},
        capture_output=True,
        text=True,
        timeout=patience(120),
        check=False,
    )
    return done.stdout


def test_first_tier_says_what_it_left_out(tmp_path: Path) -> None:
    said = run(tmp_path, "-m", "not lab and not long", "-k", "not test_not_marked", "-n", "2")
    assert "1 passed" in said
    assert "Left out: 1 tests that need" in said and "and 2 long ones" in said and "make lab" in said
    said = run(tmp_path, "-m", "lab or long")
    assert "3 passed" in said and "Left out" not in said


def test_lab_is_refused_to_a_test_without_the_marker(tmp_path: Path) -> None:
    said = run(tmp_path)
    assert "1 failed, 4 passed" in said
    assert "SLURM belongs to the lab: mark test_it.py::test_not_marked with pytest.mark.lab" in said


def test_patience_scales_the_time_limit_of_a_test(tmp_path: Path) -> None:
    assert "1 failed" in run(tmp_path, text=SLOW, **{VARIABLE: "1"})
    assert "1 passed" in run(tmp_path, text=SLOW, **{VARIABLE: "100"})


def test_patience_scales_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0.001")
    with pytest.raises(AssertionError, match=rf"not within 0.03s .*The load was .*{VARIABLE}=3"):
        eventually(lambda: False, within=30)
    monkeypatch.setenv(VARIABLE, "2.5")
    assert patience(4) == 10


WAITS = {"communicate", "wait", "join", "urlopen", "create_connection", "get", "wait_for_ready"}


def bare_deadlines(tree: ast.AST) -> Iterator[int]:
    """Find the lines of calls that wait for some fixed seconds, however busy the machine is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name == "subprocess.run" or name.rpartition(".")[2] in WAITS:
                for keyword in node.keywords:
                    value = keyword.value
                    if keyword.arg == "timeout" and isinstance(value, ast.Constant) and float(str(value.value)) >= 5:
                        yield node.lineno


def test_all_deadlines_of_tests_are_scaled() -> None:
    bare = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path.parent.name != "kubernetes" or path.parent.parent.name != "lab"  # programs that run in the lab
        for line in bare_deadlines(ast.parse(path.read_text()))
    ]
    assert not bare, f"write timeout=patience(...) in {', '.join(bare)}"
