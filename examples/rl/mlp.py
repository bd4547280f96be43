"""
A small network of fully connected layers in numpy, and how to get its parameters out of the same one in torch.

Acting needs no more than this, is faster so for single observations, and lets workers do without torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def forward(parameters: dict[str, Any], prefix: str, observation: Any) -> Any:
    """Give the outputs of a network whose layers are ``prefix.0.weight``, ``prefix.0.bias`` and so on, with ReLU."""
    found, layer = observation, 0
    while f"{prefix}.{layer}.weight" in parameters:
        if layer:
            found = np.maximum(found, 0.0)
        found = parameters[f"{prefix}.{layer}.weight"] @ found + parameters[f"{prefix}.{layer}.bias"]
        layer += 2  # every other layer of the torch module is a ReLU
    return found


def arrays(prefix: str, module: Any) -> dict[str, Any]:
    """Give the parameters of a torch module as numpy arrays."""
    return {f"{prefix}.{name}": tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}


def plain(state: Any) -> Any:
    """Make a torch state dict plain: arrays in place of tensors, so that a checkpoint of lattice.rl can hold it."""
    if isinstance(state, dict):
        return {name: plain(value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return [plain(value) for value in state]
    return state.detach().cpu().numpy() if hasattr(state, "detach") else state


def tensors(state: Any) -> Any:
    """Undo :func:`plain`: arrays become tensors."""
    import torch

    if isinstance(state, dict):
        return {name: tensors(value) for name, value in state.items()}
    if isinstance(state, list | tuple):
        return [tensors(value) for value in state]
    return torch.tensor(state) if isinstance(state, np.ndarray) else state
