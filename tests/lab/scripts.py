"""Call the lab's scripts, and say when this machine cannot have a lab."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.tiers import require_lab_tier
from tests.waiting import patience

HERE = Path(__file__).parent


def require(*programs: str) -> None:
    """Skip the test unless it runs as root and the programs are there."""
    require_lab_tier("what it uses")
    if os.geteuid() != 0:
        pytest.skip("the lab needs root, for namespaces")
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"the lab needs {', '.join(missing)}")
    if subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("the lab needs namespaces, and this machine does not let root make them")


def call(
    script: str,
    *arguments: str,
    variables: Mapping[str, str],
    within: float = 60.0,
    tell: Callable[[str], None] | None = None,
) -> str:
    """
    Run a script of the lab to its end.

    :param script: its path below this folder
    :param variables: LAB_DIR and LAB_NAME
    :param within: seconds after which it is given up
    :param tell: called with each line of its standard error as it comes, for one that takes minutes
    :return: what it printed
    """
    argv = [str(HERE / script), *arguments]
    said = []
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(
            argv,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        # What it started must go with it, or would hold its output open for as long as it lives.
        limit = threading.Timer(patience(within), os.killpg, [process.pid, signal.SIGKILL])
        limit.start()
        try:
            assert process.stderr
            with process.stderr:
                for line in process.stderr:
                    said.append(line)
                    if tell:
                        tell(line.rstrip())
            code = process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        finally:
            limit.cancel()
            limit.join()
        given_up = f" (it had {patience(within):g} s)" if code == -signal.SIGKILL else ""
        assert code == 0, f"{' '.join(argv)} ended with {code}{given_up}: {''.join(said)[-4000:]}"
        printed.seek(0)
        return printed.read()
