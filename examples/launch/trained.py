"""What the examples of this folder share: their options, something to learn, and what each worker says at the end."""

from __future__ import annotations

import argparse
import sys
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEATURES = 8


@dataclass(frozen=True)
class Trained:
    """What a worker has to tell of its training, in the words of the library that it used."""

    rank: int
    world: int
    samples: int
    """that this worker trained on"""
    before: float
    """the loss over all data"""
    after: float
    weights: str
    """checksum: workers that shared their gradients have the same"""

    def __str__(self) -> str:
        return (
            f"rank {self.rank} of {self.world}: {self.samples} samples, "
            f"loss {self.before:.4f} -> {self.after:.4f}, weights {self.weights}"
        )


def numbers(count: int = 512) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Make inputs and targets, the same on every host: the target is a weighted sum of the inputs."""
    dice = np.random.default_rng(0)
    inputs = dice.standard_normal((count, FEATURES), dtype=np.float32)
    return inputs, inputs @ np.linspace(-1, 1, FEATURES, dtype=np.float32)[:, None]


def checksum(weights: Iterable[Any]) -> str:
    """
    Put all weights into eight letters.

    :param weights: arrays, or tensors on the CPU, in the same order on every worker
    """
    found = 0
    for weight in weights:
        found = zlib.crc32(np.ascontiguousarray(weight).tobytes(), found)
    return f"{found:08x}"


def settings(description: str) -> dict[str, Any]:
    """
    Read from the command line where to run.

    :param description: what the example shows
    :return: settings of ``lattice.launch``
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--hosts", nargs="+", default="auto", help="where to run (the SLURM allocation, or this host)")
    parser.add_argument("--workers", type=int, default=2, help="workers on each host (2)")
    parser.add_argument("--ssh-config", help="an SSH configuration in place of your own")
    given = parser.parse_args()
    return {"hostnames": given.hosts, "workers_per_host": given.workers, "ssh_config_file": given.ssh_config}


def show(results: Iterable[Trained]) -> None:
    """Print a line for each worker; end with an error if they did not learn, or not together."""
    workers = list(results)
    for worker in workers:
        print(worker)
    if [(worker.rank, worker.world) for worker in workers] != [(rank, len(workers)) for rank in range(len(workers))]:
        sys.exit("they trained apart: not all are ranks of one group")
    if len({worker.weights for worker in workers}) > 1:
        sys.exit("they trained apart: their weights differ")
    if not all(worker.after < 0.5 * worker.before for worker in workers):
        sys.exit("they did not learn: the loss did not fall")
