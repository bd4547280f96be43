"""A worker that forms its group on the run's own store; rank 1 fails in the first round."""

import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method="lattice://")
everyone = torch.ones(1)
dist.all_reduce(everyone)
print(f"group of {int(everyone)} in round {os.environ['LATTICE_ROUND']}", flush=True)
if os.environ["LATTICE_ROUND"] == "1" and dist.get_rank() == 1:
    sys.exit(3)
dist.barrier()
dist.destroy_process_group()
