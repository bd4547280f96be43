"""
Training that goes on: a small model, DDP on CPU, a checkpoint every few steps in a folder that all nodes share.

    lattice run --framework pytorch --nproc_per_node 2 --max_restarts 3 examples/train_elastic.py --checkpoint /tmp/demo

Whatever changes, a lost worker, a lost node, a new one, every worker starts anew, loads the newest checkpoint and goes
on with the next step. The global batch stays the same: it is split over however many workers there are.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FEATURES = 16


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small model, elastically.")
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder on a file system that all nodes share")
    parser.add_argument("--steps", type=int, default=200, help="steps of the whole training")
    parser.add_argument("--batch", type=int, default=64, help="samples per step, over all workers")
    parser.add_argument("--every", type=int, default=10, help="steps between two checkpoints")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds to wait in each step, to have time to watch")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    first = load(options.checkpoint, model, optimizer)
    replica = DistributedDataParallel(model)
    if rank == 0:
        print(f"{world} workers, restart {restart}: begin at step {first} of {options.steps}", flush=True)

    since = torch.zeros(1), 0
    for step in range(first, options.steps):
        inputs, targets = samples(step, options.batch)
        # Worker r takes samples r, r + world, ...; sums over shares of any size add up to the whole batch.
        error = (replica(inputs[rank::world]) - targets[rank::world]).square().sum()
        # DDP takes the mean over workers, so each one scales its share of the sum up by their number.
        loss = error * world / options.batch
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        since = since[0] + error.detach() / options.batch, since[1] + 1
        if (step + 1) % options.every == 0 or step + 1 == options.steps:
            total, steps = since
            dist.all_reduce(total)
            since = torch.zeros(1), 0
            if rank == 0:
                save(options.checkpoint, step + 1, model, optimizer)
                mean = total.item() / steps
                print(f"step {step + 1} loss {mean:.4f} world {world} restart {restart}", flush=True)
        time.sleep(options.pause)
    dist.destroy_process_group()


def samples(step: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the batch of a step: the same one whoever makes it and however often, with something to learn in it."""
    dice = torch.Generator().manual_seed(step)
    inputs = torch.randn(batch, FEATURES, generator=dice)
    return inputs, inputs.sum(1, keepdim=True)


def save(folder: Path, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Replace the checkpoint in one move: who reads it finds a whole one, the old or the new."""
    folder.mkdir(parents=True, exist_ok=True)
    # A worker of a round that is over may still be writing: everyone writes to a file of their own.
    unfinished = folder / f"unfinished-{os.getpid()}-{time.time_ns()}"
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, unfinished)
    unfinished.replace(folder / "newest.pt")


def load(folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Take up the newest checkpoint; rank 0 says which step that is, so that nobody begins at another one."""
    newest = folder / "newest.pt"
    state: list[Any] = [torch.load(newest, weights_only=True) if dist.get_rank() == 0 and newest.exists() else None]
    dist.broadcast_object_list(state, src=0)
    if state[0] is None:
        return 0
    model.load_state_dict(state[0]["model"])
    optimizer.load_state_dict(state[0]["optimizer"])
    return int(state[0]["step"])


if __name__ == "__main__":
    main()
