"""
A minimal elastic application: it shows what the agent told it, forms a process group and, if asked, keeps working.

    lattice run --framework pytorch --nproc_per_node 2 examples/hello_elastic.py
    lattice run --framework pytorch --nproc_per_node 2 --max_restarts 3 examples/hello_elastic.py --steps 100

With ``--steps`` or ``--hold`` there is time to kill a worker (its process id is printed) and see the group come back.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pprint import pformat

import torch
import torch.distributed as dist

NAMES = {"GROUP_RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Say hello from a process group.")
    parser.add_argument("--steps", type=int, default=0, help="rounds of work, each of which needs all workers")
    parser.add_argument("--hold", type=float, default=0.0, help="seconds to go on working, instead of steps")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between two rounds of work")
    options = parser.parse_args()

    pid = os.getpid()
    print(environment(pid), flush=True)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"On PID {pid}, after init process group, rank={rank}, world_size={world}", flush=True)

    for step in work(options.steps, options.hold, options.pause):
        everyone = torch.ones(1)
        dist.all_reduce(everyone)
        if rank == 0:
            print(f"step {step}: {int(everyone)} workers", flush=True)
    dist.destroy_process_group()


def environment(pid: int) -> str:
    """Show what the agent set, in one piece so that the blocks of several workers do not mix."""
    given = {name: value for name, value in os.environ.items() if name in NAMES or name.startswith("TORCHELASTIC_")}
    line = "=" * 54
    return f"{line}\nEnvironment variables set by the agent on PID {pid}:\n{pformat(given)}\n{line}"


def work(steps: int, hold: float, pause: float) -> Iterator[int]:
    """Count the rounds of work; rank 0 alone decides when the time is up, so that all stop after the same one."""
    end, step = time.monotonic() + hold, 0
    while True:
        go_on = torch.tensor([step < steps or time.monotonic() < end])
        dist.broadcast(go_on, src=0)
        if not go_on:
            return
        step += 1
        yield step
        time.sleep(pause)


if __name__ == "__main__":
    main()
