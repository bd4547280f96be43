"""
Ends while a thread of gloo lets go of a tensor.

The thread shares the script's processor, and the script comes first. The last handler at exit gives the thread another
processor, then keeps Python's lock until the interpreter is finalized: the thread is ended while it waits for the lock.
"""

import atexit
import os
from pathlib import Path

threads: list[int] = []


def give_processor() -> None:
    for thread in threads:
        os.sched_setaffinity(thread, {last})


# Handlers are called last to first: these two come after those of torch.
atexit.register(sum, range(30_000_000))
atexit.register(give_processor)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import lattice.torch  # noqa: E402, F401

first, *_, last = sorted(os.sched_getaffinity(0))
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for task in Path("/proc/self/task").iterdir():
    if (task / "comm").read_text().startswith("pt_gloo"):
        threads.append(int(task.name))
for thread in (os.getpid(), *threads):
    os.sched_setaffinity(thread, {first})
os.sched_setscheduler(os.getpid(), os.SCHED_FIFO, os.sched_param(5))
dist.all_reduce(torch.ones(4))
