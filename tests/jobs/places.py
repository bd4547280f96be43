"""The places that one suite runs over: each gives the command line, and knows what still runs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lattice.process.guard import read_processes
from tests.lab.slurm import cluster
from tests.launching.transports.sshd import server
from tests.waiting import eventually, patience

COMMAND_TIMEOUT = 300


@dataclass
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str


@dataclass
class Place:
    """Where the jobs of a test run."""

    name: str
    folder: Path
    """for the test's own files"""
    home: Path
    options: Callable[[int], list[str]] = lambda size: []
    """what a submission for so many nodes has to say besides; 0 if the job itself says how many"""
    submitted: set[str] = field(default_factory=set)
    variables: dict[str, str] = field(default_factory=dict)
    queues: bool = False
    """a submission waits for its turn, so that it ends before its nodes begin"""

    def run(self, *words: str) -> Said:
        """Run a command to its end."""
        ended = subprocess.run(
            self.argv(*words),
            env=self.environ(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience(COMMAND_TIMEOUT),
            check=False,
        )
        return Said(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    def argv(self, *words: str) -> list[str]:
        """Give the command line of a command."""
        return [sys.executable, "-m", "lattice", *words]

    def environ(self) -> dict[str, str]:
        """Give the environment of a command."""
        return {**os.environ, "LATTICE_HOME": str(self.home), **self.variables}

    def submit(self, name: str, *words: str, size: int = 2) -> Said:
        """Submit a job."""
        self.submitted.add(name)
        return self.run("submit", "--name", name, "--on", self.name, *self.options(size), *words)

    def status(self, name: str) -> dict[str, Any]:
        """Ask how a job stands."""
        said = self.run("status", "--json", name)
        assert said.code == 0, said.err
        found: dict[str, Any] = json.loads(said.out)
        return found

    def reaches(self, name: str, state: str) -> dict[str, Any]:
        """Wait until a job has a state."""

        def look() -> dict[str, Any] | None:
            found = self.status(name)
            assert found["state"] == state, found
            return found

        found = eventually(look, within=60)
        assert found is not None
        return found

    def kill_agent(self, node: dict[str, Any]) -> None:
        """Kill the agent of a node, as its job's status has it."""
        os.kill(node["pid"], signal.SIGKILL)

    def running(self) -> list[str]:
        """List the processes that belong to the nodes of this place's jobs: agents, workers, and what they started."""
        found = []
        for process in read_processes():
            try:
                environ = Path(f"/proc/{process.pid}/environ").read_bytes()
                command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
            except OSError:
                continue
            if not process.ended and os.fsencode(f"{self.home}/nodes/") in environ + command:
                found.append(f"{process.pid}: {command.decode(errors='replace')}")
        return found


@contextlib.contextmanager
def local(folder: Path) -> Iterator[Place]:
    """This machine."""
    yield Place("local", folder, folder / "home", _size)


@contextlib.contextmanager
def ssh(folder: Path) -> Iterator[Place]:
    """A host behind a real sshd, under two names."""
    home = folder / "home"
    with server(folder / "sshd", SetEnv=f"LATTICE_HOME={home}") as up:
        config = folder / "ssh_config"
        config.write_text(up.host_block("alpha") + up.host_block("beta"))
        hosts = ("alpha", "beta")

        def options(size: int) -> list[str]:
            named = ",".join(hosts[i % 2] for i in range(size or 2))
            return ["--hosts", named, "--ssh_config_file", str(config)]

        yield Place("ssh", folder, home, options)


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Place]:
    """A real SLURM on hosts of the lab, which share this machine's files."""
    with cluster(3, allocated=False) as up:
        programs = folder / "bin"
        programs.mkdir()
        for name in ("sbatch", "squeue", "scancel"):
            up.install_client(programs, name)
        made = Place("slurm", folder, folder / "home", _size)
        made.queues = True
        made.variables = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURM_CONF": up.configuration}
        yield made


def _size(size: int) -> list[str]:
    return ["--size", str(size)] if size else []


PLACES = {"local": local, "ssh": ssh, "slurm": slurm}


@contextlib.contextmanager
def opened(name: str, folder: Path) -> Iterator[Place]:
    """Open a place for the length of a block; nothing may run there at its end."""
    with PLACES[name](folder) as made:
        yield made
        for job in made.submitted:
            made.run("kill", "--grace", "20", job)
        eventually(lambda: not made.running())


@pytest.fixture(params=["local", "ssh", pytest.param("slurm", marks=pytest.mark.lab)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Every place, one after another."""
    with opened(request.param, tmp_path) as made:
        yield made
