"""Call the lab's scripts, and say when this machine cannot have a lab."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def require(*programs: str) -> None:
    """Skip the test unless it runs as root and the programs are there."""
    if os.geteuid() != 0:
        pytest.skip("the lab needs root, for namespaces")
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"the lab needs {', '.join(missing)}")
    if subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("the lab needs namespaces, and this machine does not let root make them")


def call(script: str, *arguments: str, variables: Mapping[str, str], within: float = 60.0) -> str:
    """
    Run a script of the lab to its end.

    :param script: its path below this folder
    :param variables: LAB_DIR and LAB_NAME
    :param within: seconds after which it is given up
    :return: what it printed
    """
    argv = [str(HERE / script), *arguments]
    done = subprocess.run(
        argv,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=within,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(argv)} ended with {done.returncode}: {done.stderr[-4000:]}"
    return done.stdout
