"""
Plain DistributedDataParallel. The process group is there when the function begins, and is taken down after it.

    python examples/launch/ddp.py --hosts node1 node2 --workers 2
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import lattice
from trained import FEATURES, Trained, checksum, numbers, settings, show


def train(epochs: int = 3) -> Trained:
    device = f"cuda:{os.environ['LOCAL_RANK']}" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(dist.get_rank())  # DDP begins with the weights of rank 0
    model = torch.nn.Linear(FEATURES, 1).to(device)
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    inputs, targets = (torch.from_numpy(array).to(device) for array in numbers())
    data = TensorDataset(inputs, targets)
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)

    def loss() -> float:
        with torch.no_grad():
            return torch.nn.functional.mse_loss(model(inputs), targets).item()

    before, samples = loss(), 0
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for some, wanted in loader:
            optimizer.zero_grad()
            (replica(some) - wanted).square().mean().backward()
            optimizer.step()
            samples += len(some)
    weights = checksum(weight.detach().cpu() for weight in model.parameters())
    return Trained(dist.get_rank(), dist.get_world_size(), samples, before, loss(), weights)


if __name__ == "__main__":
    show(lattice.launch(train, **settings("Train with DistributedDataParallel.")))
