"""Joins a gloo group, sums the ranks, and says what it got and what chance gave it."""

import json
import os
import sys

import numpy
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
facts = {
    "sum": total.item(),
    "torch": torch.rand(1).item(),
    "seed": torch.initial_seed(),
    "numpy": numpy.random.rand(),
    "threads": torch.get_num_threads(),
    "blas": os.environ.get("OPENBLAS_NUM_THREADS"),
}
print(json.dumps(facts), flush=True)
if "wait" in sys.argv:
    sys.stdin.read()
dist.destroy_process_group()
