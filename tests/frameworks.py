"""Python with a library that is too large, or too particular about versions, for the environment of all tests."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.agents import ROOT
from tests.tiers import require_lab_tier


def interpreter(name: str) -> str:
    """
    Give the interpreter of an environment, which is made if there is none yet; skip with the reason if it cannot be.

    :param name: of a file in requirements/
    """
    require_lab_tier(f"the environment {name}")
    made = subprocess.run(
        [ROOT / "scripts" / "framework_venv.sh", name],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode == 0:
        return made.stdout.strip()
    reason = f"{name} can't be installed here: {made.stderr.strip()[-500:]}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
