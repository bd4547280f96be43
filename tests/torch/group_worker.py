"""A worker of a real process group, started by test_groups.py with the variables an agent would give it."""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PATIENCE = timedelta(minutes=10)  # the test that started it gives up sooner


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def total() -> int:
    mine = torch.tensor([RANK + 1])
    dist.all_reduce(mine)
    return int(mine)


def by_store() -> None:
    """Everything that a training script does with a group, on a store that was made first."""
    import lattice.torch

    before = threads()
    store = lattice.torch.store(timeout=PATIENCE)
    store.set(f"here{RANK}", "yes")
    store.wait([f"here{rank}" for rank in range(WORLD)])
    # torch's own TCP store has a thread in rank 0; ours has none.
    assert threads() == before or isinstance(store, dist.PrefixStore), "the store brought a thread"
    assert "grpc" not in sys.modules
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=WORLD, timeout=PATIENCE)
    dist.barrier()
    dist.monitored_barrier(timeout=PATIENCE)
    everyone = dist.new_group(list(range(WORLD)))
    dist.barrier(group=everyone)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    data = DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=2, num_workers=2)
    for (batch,) in data:
        model(batch).sum().backward()
    # The forked children shared our sockets: the store still has to answer the right questions.
    store.set(f"trained{RANK}", str(RANK))
    got = [store.get(f"trained{rank}") for rank in range(WORLD)]
    assert got == [str(rank).encode() for rank in range(WORLD)]
    print("total", total(), type(store).__name__)


def by_url() -> None:
    """No import of Lattice at all, and a group that is formed a second time."""
    for _ in range(2):
        dist.init_process_group("gloo", init_method="lattice://", timeout=PATIENCE)
        assert (dist.get_rank(), dist.get_world_size()) == (RANK, WORLD)
        sum_of_all = total()
        dist.destroy_process_group()
    print("total", sum_of_all)


def without_rank_0() -> None:
    """The worker that would host a TCP store dies, and the others go on to talk."""
    import lattice.torch

    store = lattice.torch.store(timeout=PATIENCE)
    store.set(f"here{RANK}", "yes")
    store.wait([f"here{rank}" for rank in range(WORLD)])
    if RANK == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    # Wait until it is gone for good, not only about to go.
    print("ready", flush=True)
    sys.stdin.readline()
    store.set(f"after{RANK}", str(RANK))
    got = [int(store.get(f"after{rank}")) for rank in range(1, WORLD)]
    print("total", sum(got))


def forked() -> None:
    """A child that inherits the store uses connections of its own."""
    import lattice.torch

    store = lattice.torch.store(timeout=PATIENCE)
    store.add("number", 1)
    child = os.fork()
    for n in range(20):
        store.add("number", 1)
        store.set(f"{child > 0}{n}", str(n))
        assert store.get(f"{child > 0}{n}") == str(n).encode()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print("total", store.num_keys(), store.add("number", 0))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
