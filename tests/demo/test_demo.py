"""The demo of the README does what it promises, with etcd and without, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts.terminal_svg import picture, shortened
from tests.etcd_server import require_etcd
from tests.tiers import quick_and_long
from tests.waiting import patience

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("store", quick_and_long(["etcd"], ["a store that agent a serves"]))
def test_the_demo_recovers_from_everything(store: str, tmp_path: Path) -> None:
    path = os.environ["PATH"]
    if store == "etcd":
        require_etcd()
    else:
        for program in ("bash", "env", "sh"):
            (tmp_path / program).symlink_to(str(shutil.which(program)))
        path = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "scripts.demo"],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience(280),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"met in {store}" in done.stdout
    rows = [line for line in done.stdout.splitlines() if line.endswith(" s") and "round" in line]
    assert [row.split("round ")[1][0] for row in rows] == ["1", "2", "3", "4"]
    assert not list(tmp_path.glob("lattice-*"))


def test_a_recorded_terminal_becomes_a_picture() -> None:
    svg = picture(["\033[1m── one\033[0m <two>", "", "\033[36m  a │ \033[0mthree"], "title")
    texts = [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
    assert texts == ["title", "── one", " <two>", "  a │ ", "three"]
    assert shortened("\033[1mabcdef\033[0m", 4) == "\033[1mabc\033[0m…"
