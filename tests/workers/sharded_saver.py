"""Saves and restores a model, its optimizer and a tensor of which every rank has a part: ``sharded_saver.py WHERE``."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from lattice.checkpoint import Checkpointer

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (world,))


def shards(value: float) -> DTensor:
    return distribute_tensor(torch.arange(26.0).reshape(13, 2) * value, mesh, [Shard(0)])


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(4)).sum().backward()
    optimizer.step()


torch.manual_seed(0)
expected_model = torch.nn.Linear(4, 4)
expected = torch.optim.Adam(expected_model.parameters())
torch.manual_seed(rank)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.Adam(model.parameters())
saver = Checkpointer(sys.argv[1])
default: dict[str, Any] = {"model": model, "optimizer": optimizer, "table": shards(0.0), "seen": [], "by": {0: "none"}}
state, step = saver.restore(default)
if step == 0:
    model.load_state_dict(expected_model.state_dict())
for _ in range(step):
    train(expected_model, expected)
assert torch.equal(model.weight, expected_model.weight)
for mine, its in zip(model.parameters(), expected_model.parameters(), strict=True):
    assert optimizer.state[mine].keys() == expected.state[its].keys()
    assert all(torch.equal(value, expected.state[its][name]) for name, value in optimizer.state[mine].items())
assert torch.equal(state["table"].full_tensor(), torch.arange(26.0).reshape(13, 2) * step)
assert state["seen"] == [f"step {number}" for number in range(1, step + 1)]
assert state["by"] == ({0: "none"} if step == 0 else {step: "saved"})
print(f"rank {rank} of {world} from {step}", flush=True)
step += 1
train(model, optimizer)
state |= {"table": shards(float(step)), "seen": [*state["seen"], f"step {step}"], "by": {step: "saved"}}
saver.save(step, state)
if sys.argv[2:] == ["die"] and os.environ["LATTICE_RESTART_COUNT"] == "0":
    dist.barrier()
    os.kill(os.getpid(), signal.SIGKILL)
dist.destroy_process_group()
