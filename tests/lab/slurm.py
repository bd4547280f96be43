"""A real SLURM on hosts of the lab, with an allocation of all of its nodes."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.lab.hosts import Network, network
from tests.lab.scripts import HERE, call, require
from tests.waiting import patience


@dataclass(frozen=True)
class Cluster:
    """SLURM that is up, and a job that does nothing but hold the nodes."""

    network: Network
    configuration: str
    job: str

    @property
    def nodes(self) -> tuple[str, ...]:
        """SLURM's names of the nodes."""
        return self.network.names

    def client(self, *argv: str) -> str:
        """Run a client command on the first node, and give what it printed."""
        return call("slurm/run.sh", *argv, variables=self.network.variables).strip()

    def install_client(self, folder: Path, name: str = "srun") -> None:
        """Write a client command into a folder that does what it does on the first node, with its own pid."""
        command = " ".join(self.network.on(self.nodes[0], "/usr/bin/env", name))
        (folder / name).write_text(f'#!/bin/sh\nPATH=${{PATH#*:}}\nexec {command} "$@"\n')
        (folder / name).chmod(0o755)

    def variables(self) -> dict[str, str]:
        """Give what a process in the allocation finds in its environment."""
        return {
            "SLURM_CONF": self.configuration,
            "SLURM_JOB_ID": self.job,
            "SLURM_JOB_NODELIST": self.client("squeue", "-h", "-j", self.job, "-o", "%N"),
            "SLURM_JOB_CPUS_PER_NODE": f"2(x{len(self.nodes)})",
        }


@contextlib.contextmanager
def cluster(count: int, *, allocated: bool = True) -> Iterator[Cluster]:
    """
    Have a SLURM for the length of a block.

    :param count: how many nodes
    :param allocated: whether to have an allocation of all of them, too
    """
    require("munged", "slurmctld", "slurmd", "srun", "salloc")
    with network(count) as hosts:
        said = call("slurm/up.sh", str(count), variables=hosts.variables)
        configuration = said.strip().rpartition("=")[2]
        if not allocated:
            yield Cluster(hosts, configuration, "")
            return
        said = subprocess.run(
            [str(HERE / "slurm/run.sh"), "salloc", "--no-shell", f"-N{count}", "--exclusive"],
            env={**os.environ, **hosts.variables},
            capture_output=True,
            text=True,
            check=True,
            timeout=patience(60),
        ).stderr
        job = said.partition("job allocation ")[2].split()[0]
        yield Cluster(hosts, configuration, job)
