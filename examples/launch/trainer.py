"""
Hugging Face Trainer: a tiny language model learns to count. On CPUs ``use_cpu`` must be given, or each worker is alone.

    python examples/launch/trainer.py --hosts node1 node2 --workers 2
"""

from __future__ import annotations

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import lattice
from trained import Trained, checksum, settings, show

WORDS, LENGTH = 16, 8


class Counting(Dataset[dict[str, torch.Tensor]]):
    """Rows that begin anywhere and go up by one, round and round."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.taken = 0

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        self.taken += 1
        row = torch.arange(index, index + LENGTH).remainder(WORDS)
        return {"input_ids": row, "labels": row}


def train(epochs: int = 4) -> Trained:
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, bos_token_id=0, eos_token_id=0, **size))
    data = Counting(256)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=not torch.cuda.is_available(),
            num_train_epochs=epochs,
            per_device_train_batch_size=16,
            learning_rate=0.01,
            # Not trainer.evaluate() before trainer.train(): after it each worker would train alone.
            eval_on_start=True,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            ddp_find_unused_parameters=False,
        )
        trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=Counting(WORDS))
        trainer.train()
    losses = [logged["eval_loss"] for logged in trainer.state.log_history if "eval_loss" in logged]
    weights = checksum(weight.detach().cpu() for weight in model.parameters())
    return Trained(arguments.process_index, arguments.world_size, data.taken, losses[0], losses[-1], weights)


if __name__ == "__main__":
    # Imported once on each host, and not once in each worker: this library takes seconds.
    show(lattice.launch(train, preload="transformers.trainer", **settings("Train with the Trainer of Transformers.")))
