"""A worker of the demo: joins a process group and adds numbers with its peers until a file says that it is enough."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist


def main() -> None:
    enough = Path(sys.argv[1])
    dist.init_process_group("gloo")
    rank, world, number = dist.get_rank(), dist.get_world_size(), os.environ["LATTICE_ROUND"]
    print(f"round {number}: group of {world} formed, I am rank {rank}", flush=True)
    try:
        work(rank, world, enough)
    except RuntimeError as error:  # one line instead of a traceback: there is a lot to see in the demo
        raise SystemExit(f"round {number}: rank {rank} lost a peer: {str(error).split('] ', 1)[-1][:40]}") from None
    print(f"round {number}: rank {rank} is done", flush=True)
    dist.destroy_process_group()


def work(rank: int, world: int, enough: Path) -> None:
    """Add numbers until the file is there."""
    while True:
        # One tensor says both: that everybody is there, and whether rank 0 has seen the file.
        votes = torch.tensor([1, int(rank == 0 and enough.exists())])
        dist.all_reduce(votes)
        if int(votes[0]) != world:
            raise SystemExit(f"{votes[0]} of {world} answered")
        if int(votes[1]):
            break
        time.sleep(0.1)
    dist.barrier()


if __name__ == "__main__":
    main()
