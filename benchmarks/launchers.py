"""The command lines that are compared: the same job for Lattice and for torchrun of the installed torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import uuid4

from benchmarks.etcd import free_port

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Shape:
    """A job."""

    nodes: int = 1
    """agents that are started"""
    nnodes: str = "1"
    workers: int = 1
    """workers of each agent"""
    restarts: int = 3

    @property
    def world(self) -> int:
        """Give the number of all workers."""
        return self.nodes * self.workers


Launcher = Callable[[Shape, Sequence[str]], list[list[str]]]
"""gives one command line for each agent, for a job and the words of its entry point"""


def lattice(endpoint: str = "", *more: str) -> Launcher:
    """
    Launch with Lattice.

    :param endpoint: where etcd is; empty for the store inside of the agent
    :param more: further options
    """

    def commands(shape: Shape, entry: Sequence[str]) -> list[list[str]]:
        meeting = ["--rdzv_endpoint", endpoint, "--rdzv_id", uuid4().hex] if endpoint else []
        options = ["--framework", "pytorch", "--log_dir", "logs", *_size(shape), *meeting, *more]
        return [[sys.executable, "-m", "lattice", "run", *options, *entry] for _ in range(shape.nodes)]

    return commands


def torchrun() -> Launcher:
    """Launch with torchrun: alone, or through the c10d store that the first agent serves."""

    def commands(shape: Shape, entry: Sequence[str]) -> list[list[str]]:
        argv = [sys.executable, "-m", "torch.distributed.run", "--log_dir", "logs", *_size(shape)]
        if shape.nodes == 1:
            return [[*argv, "--standalone", *entry]]
        argv += ["--rdzv_backend", "c10d", "--rdzv_endpoint", f"{LOOPBACK}:{free_port()}", "--rdzv_id", uuid4().hex]
        argv += ["--local_addr", LOOPBACK]
        hosts = ["is_host=true", *["is_host=false"] * (shape.nodes - 1)]
        return [[*argv, "--rdzv_conf", host, *entry] for host in hosts]

    return commands


def _size(shape: Shape) -> list[str]:
    words = ["--nnodes", shape.nnodes, "--nproc_per_node", str(shape.workers)]
    return [*words, "--max_restarts", str(shape.restarts)]
