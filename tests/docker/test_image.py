"""The image and the Compose example, on a real Docker engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lab.engine import Engine

# tests/sharing.py keeps these in one process: the engine and the image are made once.
pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "examples/multi_container/docker-compose.yml"

PARTS = (
    "tests/jobs/test_archive.py",
    "tests/options",
    "tests/process",
    "tests/stores/test_contract.py",
    "tests/launching/sync/test_snapshot.py",
    "tests/launching/test_group.py",
    "tests/launching/test_warm.py",
    "tests/launching/transports/test_ssh.py",
    "tests/test_cli.py",
)
LACKING = ("the lab needs", "needs to make a memory cgroup", "needs to read the kernel's log", "no IPv6 here")
"""beginnings of the reasons for which a test may be skipped in a container; programs that tests need are all there"""

OWN_SCRIPT = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
ones = torch.ones(1)
dist.all_reduce(ones)
print("sum", int(ones), "of", os.environ["WORLD_SIZE"], "in", os.environ["LATTICE_ROUND"], flush=True)
"""


def compose(up: Engine, file: Path) -> str:
    """Run the services until the example ends, and give what it printed."""
    project = ("compose", "-p", "hello", "-f", str(file))
    try:
        return up.docker(*project, "up", "--no-color", "--exit-code-from", "example", within=180).stdout
    finally:
        up.docker(*project, "down", "--timeout", "5")


def test_the_example_forms_a_group_of_two(built: Engine) -> None:
    printed = compose(built, COMPOSE)
    groups = re.findall(r"example-1 .*rank\D*(\d).*world_size\D*(\d)", printed)
    assert {("0", "2"), ("1", "2")} <= set(groups), printed


def test_a_mounted_script_runs_with_the_documented_lines(built: Engine, tmp_path: Path) -> None:
    (tmp_path / "your_app.py").write_text(OWN_SCRIPT)
    text = COMPOSE.read_text()
    # The lines that the file shows in comments, with this folder as theirs.
    text = re.sub(r"\n    command: --nnode.*hello_elastic.py", "", text)
    text = text.replace("    # volumes:", "    volumes:").replace("    #   - /path", "      - /path")
    text = text.replace("    # command:", "    command:").replace("/path/to/your/app", str(tmp_path))
    file = tmp_path / "docker-compose.yml"
    file.write_text(text)
    printed = compose(built, file)
    assert printed.count("sum 2 of 2 in") == 2, printed


def test_a_failing_script_gives_its_exit_code(built: Engine, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("raise SystemExit(7)")
    done = built.docker(
        "run", "--rm", "-v", f"{tmp_path}:/workspace", "lattice-agent", "/workspace/app.py", check=False
    )
    assert done.returncode == 7, done.stdout


def test_the_suite_passes_inside(built: Engine) -> None:
    # A part that is quick and touches all layers; the whole of it runs the same way, only longer. Without a network,
    # because that of the lab leads nowhere: a name would be looked up until time runs out.
    pytest_inside = ["run", "--rm", "--network", "none", "--entrypoint", "pytest", "lattice-agent"]
    printed = built.docker(*pytest_inside, "-q", "-x", "-n", "2", "-m", "not soak", *PARTS, within=600).stdout
    assert re.search(r"\d+ passed", printed), printed
    reasons = re.findall(r"^SKIPPED \[\d+\] \S+ (.*)$", printed, re.MULTILINE)
    assert not [reason for reason in reasons if not reason.startswith(LACKING)], printed
