"""
Training that goes on: a small model, DDP on CPU, a checkpoint every few steps.

    lattice run --framework pytorch --nproc_per_node 2 --max_restarts 3 examples/train_elastic.py --checkpoint /tmp/demo

Whatever changes, a lost worker, a lost node, a new one, every worker starts anew, loads the newest checkpoint and goes
on with the next step. The global batch stays the same: it is split over however many workers there are.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lattice.checkpoint import Checkpointer

FEATURES = 16


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small model, elastically.")
    parser.add_argument("--checkpoint", required=True, help="a folder that all nodes share, or s3://bucket/prefix")
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
    checkpoints = Checkpointer(options.checkpoint)
    state, first = checkpoints.restore({"model": model, "optimizer": optimizer})
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
            checkpoints.save(step + 1, state)
            if rank == 0:
                mean = total.item() / steps
                print(f"step {step + 1} loss {mean:.4f} world {world} restart {restart}", flush=True)
        time.sleep(options.pause)
    dist.destroy_process_group()


def samples(step: int, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Make the batch of a step: the same one whoever makes it and however often, with something to learn in it."""
    dice = torch.Generator().manual_seed(step)
    inputs = torch.randn(batch, FEATURES, generator=dice)
    return inputs, inputs.sum(1, keepdim=True)


if __name__ == "__main__":
    main()
