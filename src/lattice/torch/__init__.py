"""Lattice inside a PyTorch worker. Importing this imports neither torch nor anything else that is slow."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lattice.torch.etcd_store import EtcdStore
    from lattice.torch.rendezvous import register, store

__all__ = ["EtcdStore", "register", "store"]

_WHERE = {"EtcdStore": "etcd_store", "register": "rendezvous", "store": "rendezvous"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


# The agent comes by here too (python -m lattice.torch.run) and must not pay for torch; a worker has it already.
if "torch.distributed.rendezvous" in sys.modules:
    __getattr__("register")()
