"""
A script that makes its launcher from a command line of its own, by argparse of the standard library.

    python examples/launch_with_argparse.py --epochs 3
    python examples/launch_with_argparse.py --epochs 3 --hostnames node1 node2 --workers-per-host 8

``tyro.cli(lattice.Launcher)`` does the same for all settings in one line, and ``lattice launch FILE.py:train`` without
any.
"""

from __future__ import annotations

import argparse
import os

import lattice


def train(epochs: int) -> str:
    return f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}: {epochs} epochs"


def count(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def main() -> None:
    # SUPPRESS: what is not given is not there, so the defaults are the launcher's own.
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    parser.add_argument("--epochs", type=int, default=1, help="of the training (default: 1)")
    where = parser.add_argument_group("where to run")
    where.add_argument(
        "--hostnames", nargs="+", metavar="HOST", help="hosts (default: the SLURM allocation, or this one)"
    )
    where.add_argument(
        "--workers-per-host", type=count, metavar="N|auto|cpu|gpu", help="workers on each (default: auto)"
    )
    where.add_argument("--backend", choices=["nccl", "gloo", "auto"], help="process group to form (default: auto)")
    where.add_argument("--no-backend", dest="backend", action="store_const", const=None, help="form none")
    where.add_argument("--max-restarts", type=int, help="failures after which it is run again (default: 0)")
    settings = vars(parser.parse_args())
    epochs = settings.pop("epochs")
    for line in lattice.Launcher(**settings).run(train, epochs):
        print(line)


if __name__ == "__main__":
    main()
