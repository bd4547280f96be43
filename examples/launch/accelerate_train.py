"""
Hugging Face Accelerate. It takes over the process group of the launch; on CPUs it must be told so, or trains alone.

    python examples/launch/accelerate_train.py --hosts node1 node2 --workers 2
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import lattice
from trained import FEATURES, Trained, checksum, numbers, settings, show


def train(epochs: int = 3) -> Trained:
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    torch.manual_seed(accelerator.process_index)  # prepare() has all begin with the weights of rank 0
    inputs, targets = map(torch.from_numpy, numbers())
    data = TensorDataset(inputs, targets)
    model = torch.nn.Linear(FEATURES, 1)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.02), DataLoader(data, batch_size=16, shuffle=True)
    )

    def loss() -> float:
        with torch.no_grad():
            found = model(inputs.to(accelerator.device))
            return torch.nn.functional.mse_loss(found, targets.to(accelerator.device)).item()

    before, samples = loss(), 0
    for _ in range(epochs):
        for some, wanted in loader:
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.mse_loss(model(some), wanted))
            optimizer.step()
            samples += len(some)
    weights = checksum(weight.detach().cpu() for weight in model.parameters())
    return Trained(accelerator.process_index, accelerator.num_processes, samples, before, loss(), weights)


if __name__ == "__main__":
    show(lattice.launch(train, **settings("Train with Accelerate.")))
