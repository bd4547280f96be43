"""The check for leaks, which most folders of tests use, finds what a test leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.agents import ROOT
from tests.waiting import VARIABLE, patience

LEAKS = """\
import os, subprocess, threading, weakref
from tests.leaks import no_leaks

kept = []

def test_process():
    kept.append(subprocess.Popen(["sleep", "60"]))

def test_descriptor():
    kept.append(os.open("/dev/null", os.O_RDONLY))

def test_thread():
    kept.append(threading.Event())
    threading.Thread(target=kept[-1].wait, daemon=True).start()

def test_garbage_is_no_leak():
    file = open("/dev/null")
    cycle = [file]
    cycle.append(cycle)

def test_nothing():
    subprocess.run(["true"])

def test_end():
    kept[0].kill()
    kept[0].wait()
    kept[2].set()
"""


def test_leaks_are_found_and_named(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    (tmp_path / "test_it.py").write_text(LEAKS)
    variables = {"PYTHONPATH": f"{ROOT}:{ROOT}/src", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", VARIABLE: "0.02"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "pytest", "-q", "-rE"],
        cwd=tmp_path,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    errors = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("ERROR test_it")]
    assert errors == [f"test_it.py::test_{what}" for what in ("process", "descriptor", "thread")], done.stdout
    assert "(sleep 60 )" in done.stdout and "(/dev/null)" in done.stdout
