"""A Docker engine of our own, in private namespaces, for a machine without one or whose own must not be touched."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.scripts import call, require
from tests.waiting import patience


@dataclass(frozen=True)
class Engine:
    """An engine that is up."""

    variables: dict[str, str]

    def docker(self, *arguments: str, within: float = 120.0, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run the docker command against it; standard error is part of the output."""
        done = subprocess.run(
            ["docker", *arguments],
            env={**os.environ, **self.variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience(within),
            check=False,
        )
        if check:
            assert done.returncode == 0, f"docker {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}"
        return done


@contextlib.contextmanager
def engine() -> Iterator[Engine]:
    """Have a Docker engine with Compose for the length of a block, with a base image ``local/base`` in it."""
    require("apt-get", "unshare")
    if not Path("/sys/fs/cgroup/freezer").is_dir():
        pytest.skip("the lab's Docker engine needs cgroup v1")
    # Not below the temporary folder: what was downloaded is used again, and sockets need short paths.
    variables = {"LAB_NAME": f"t{os.getpid()}"}
    try:
        call("docker/provision.sh", variables=variables, within=600)
        base = call("docker/base.sh", sys.executable, variables=variables, within=400).strip()
        exports = call("docker/up.sh", variables=variables)
        words = [word for line in exports.splitlines() for word in line.split("#")[0].split() if "=" in word]
        up = Engine({**variables, **dict(word.split("=", 1) for word in words)})
        assert shutil.which("docker")
        change = "ENV PIP_FIND_LINKS=/wheels PIP_NO_INDEX=1"
        up.docker("import", "--change", change, base, "local/base")
        yield up
    finally:
        call("docker/down.sh", variables=variables, within=300)
