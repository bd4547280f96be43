"""Checkpoints that cost a memory copy and survive everything: :class:`Checkpointer`."""

from lattice.checkpoint.api import Checkpointer, CheckpointError

__all__ = ["CheckpointError", "Checkpointer"]
