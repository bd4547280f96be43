"""What type checkers know of a launch: mypy itself is asked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.agents import ROOT
from tests.waiting import patience

SOURCE = """\
import lattice
from lattice import Launcher, launch

def f(count: int, *, scale: float = 1.0) -> str:
    return str(count * scale)

def g() -> None: ...

waits = bool(input())
reveal_type(launch(f, (1,)))  # LaunchResult[str]
reveal_type(launch(f, (1,)).rank(0))  # str
reveal_type(launch(func=g, hostnames=["a", "b"], workers_per_host=8))  # LaunchResult[None]
reveal_type(launch(f, (1,), {"scale": 2.0}, wait=True, backend=None).all())  # list[str]
reveal_type(launch(f, (1,), wait=False, run_timeout=1.5))  # LaunchHandle[str]
reveal_type(launch(f, (1,), wait=False).result(1))  # LaunchResult[str]
reveal_type(launch(f, (1,), wait=waits))  # LaunchResult[str] | LaunchHandle[str]
reveal_type(launch(lambda: 5).index("localhost", 0))  # int
reveal_type(launch(f, (1,)).results)  # dict[str, list[str]]
launch(f, (1,), hostname=["a"])  # error: call-overload
launch(f, (1,), hostnames="a")  # error: call-overload
launch(f, (1,), timeout="long")  # error: call-overload
launch(f, (1,), backend="tcp")  # error: call-overload
launch(5)  # error: call-overload
reveal_type(Launcher(timeout=5, log_handlers=None).run(f, 1, scale=2.0).rank(0))  # str
reveal_type(Launcher().start(f, 1))  # LaunchHandle[str]
Launcher().run(f, "one")  # error: arg-type
Launcher().run(f)  # error: call-arg
Launcher().run(f, 1, size=2.0)  # error: call-arg
Launcher().start(f, 1, scale="large")  # error: arg-type
Launcher(hostname=["a"])  # error: call-arg
Launcher(log_handlers=5)  # error: arg-type
with Launcher(hostnames=["a"]) as pool:
    reveal_type(pool.run(g))  # LaunchResult[None]
"""
SETTINGS = """\
[mypy]
strict = True
# What belongs to others is not looked at: it takes minutes.
[mypy-torch.*,numpy.*,cloudpickle.*,grpc.*,google.*]
follow_imports = skip
ignore_missing_imports = True
"""


def test_mypy_knows_settings_arguments_and_results(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(SOURCE)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    cache = ROOT / ".cache" / "mypy of test_typing"  # kept: mypy reads what has not changed from there
    line = [sys.executable, "-m", "mypy", "--config-file=mypy.ini", f"--cache-dir={cache}", "--no-pretty", "typed.py"]
    environ = {**os.environ, "MYPYPATH": str(ROOT / "src"), "COLUMNS": "200"}
    done = subprocess.run(
        line, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=patience(250), check=False
    )
    said: dict[int, str] = {}
    for found in re.finditer(
        r'^typed\.py:(\d+): (?:note: Revealed type is "(.*)"|error: .*  \[(.*)\])$', done.stdout, re.M
    ):
        revealed = re.sub(r"\b(?:[a-z_]+\.)+", "", found[2] or "")
        said.setdefault(int(found[1]), revealed or f"error: {found[3]}")
    expected = {
        number: text.partition("  # ")[2] for number, text in enumerate(SOURCE.splitlines(), 1) if "  # " in text
    }
    assert said == expected, done.stdout + done.stderr
