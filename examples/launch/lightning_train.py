"""
Lightning. It recognises the variables of the launch as torchelastic's: it uses these workers and starts none itself.

    python examples/launch/lightning_train.py --hosts node1 node2 --workers 2
"""

from __future__ import annotations

import os

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

import lattice
from trained import FEATURES, Trained, checksum, numbers, settings, show


class Net(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(FEATURES, 1)
        self.samples = 0

    def training_step(self, batch: list[torch.Tensor], number: int) -> torch.Tensor:
        some, wanted = batch
        self.samples += len(some)
        return torch.nn.functional.mse_loss(self.layer(some), wanted)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.02)


def train(epochs: int = 3) -> Trained:
    model = Net()
    inputs, targets = map(torch.from_numpy, numbers())
    data = TensorDataset(inputs, targets)

    def loss() -> float:
        with torch.no_grad():
            return torch.nn.functional.mse_loss(model.layer(inputs), targets).item()

    trainer = lightning.Trainer(
        accelerator="auto",
        strategy="ddp",
        # Lightning asks for both, and they must be what the launch has.
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        num_nodes=int(os.environ["GROUP_WORLD_SIZE"]),
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    before = loss()
    trainer.fit(model, DataLoader(data, batch_size=16, shuffle=True))
    weights = checksum(weight.detach() for weight in model.parameters())
    return Trained(trainer.global_rank, trainer.world_size, model.samples, before, loss(), weights)


if __name__ == "__main__":
    show(lattice.launch(train, **settings("Train with Lightning.")))
