"""Who this process is among those that save together."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any

from lattice.core.keeper import RUN


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process, and whether a process group of torch connects it with the others."""

    rank: int
    world: int
    together: bool
    """whether all ranks save their own parts; else rank 0 saves all of it"""
    run: str
    round: int
    restarts: int

    def tell_all(self, value: Any) -> Any:
        """Give every rank what rank 0 has."""
        if not self.together:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def all_agree(self, problem: str) -> str:
        """Give every rank the first problem that any of them has; nothing if none has."""
        if not self.together:
            return problem
        import torch.distributed as dist

        boxes: list[Any] = [None] * self.world
        dist.all_gather_object(boxes, problem)
        return next((box for box in boxes if box), "")


def ranks(token: str) -> Ranks:
    """
    Look who this process is.

    :param token: the name of the run if there is no other: this process is one by itself
    """
    environ = os.environ
    restarts = environ.get("LATTICE_RESTART_COUNT") or environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
    return Ranks(*_place(), *_run(token), int(restarts))


def _run(token: str) -> tuple[str, int]:
    """Name the run, as no other is named that ever wrote to the same place, and give the number of the round."""
    environ = os.environ
    if name := environ.get("LATTICE_RUN_ID"):
        unique = environ.get(RUN)
        return f"{name} ({unique})" if unique else name, int(environ.get("LATTICE_ROUND") or "0")
    if name := environ.get("TORCHELASTIC_RUN_ID"):
        # torchrun begins to count anew with each run, and gives all of them one id unless it is told another: a
        # restart is a run of its own here, so that nobody is taken for one that came before.
        where = f"{environ.get('MASTER_ADDR', '')}:{environ.get('MASTER_PORT', '')}"
        return f"{name}, restart {environ.get('TORCHELASTIC_RESTART_COUNT') or '0'} ({where})", 0
    return token, 0


def _place() -> tuple[int, int, bool]:
    if "torch" in sys.modules:
        import torch.distributed as dist

        if dist.is_available() and dist.is_initialized():
            return dist.get_rank(), dist.get_world_size(), dist.get_world_size() > 1
    for rank, world in (("LATTICE_RANK", "LATTICE_WORLD_SIZE"), ("RANK", "WORLD_SIZE")):
        if rank in os.environ and world in os.environ:
            return int(os.environ[rank]), int(os.environ[world]), False
    return 0, 1, False
