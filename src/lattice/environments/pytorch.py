"""PyTorch: every variable that torchrun sets, so that its scripts, ``env://`` and ``@record`` work unchanged."""

from __future__ import annotations

from collections.abc import Mapping

from lattice.core.topology import Assignment
from lattice.environments.generic import ports, whole_roster

__all__ = ["defaults", "notices", "ports", "variables", "whole_roster"]


def variables(assignment: Assignment, local_rank: int, error_file: str) -> Mapping[str, str]:
    """Give what torchrun gives; all workers have one role, so ranks and sizes within it are those of the world."""
    entry = assignment.entry
    rank, world = str(entry.rank_offset + local_rank), str(assignment.world)
    return {
        "RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(entry.workers),
        "GROUP_RANK": str(entry.group_rank),
        "GROUP_WORLD_SIZE": str(assignment.nodes),
        "ROLE_NAME": assignment.role,
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": assignment.master_address,
        "MASTER_PORT": str(assignment.master_port),
        "TORCHELASTIC_RUN_ID": assignment.run_id,
        "TORCHELASTIC_RESTART_COUNT": str(assignment.restarts),
        "TORCHELASTIC_MAX_RESTARTS": str(assignment.max_restarts),
        # The agent hosts no store: rank 0 listens on the reserved port, anew in every round.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": error_file,
    }


def defaults(workers: int, inherited: Mapping[str, str]) -> Mapping[str, str]:
    """Let a failed NCCL collective end its worker, and keep several workers from competing for the cores."""
    wanted = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    if workers > 1:
        wanted["OMP_NUM_THREADS"] = "1"
    return {name: value for name, value in wanted.items() if name not in inherited}


def notices(workers: int, inherited: Mapping[str, str]) -> tuple[str, ...]:
    """Tell about OMP_NUM_THREADS, which decides how fast a worker computes."""
    if "OMP_NUM_THREADS" not in defaults(workers, inherited):
        return ()
    return (
        f"OMP_NUM_THREADS is not set: each of the {workers} workers gets 1, so that they do not compete for the cores. "
        "Set OMP_NUM_THREADS to choose otherwise.",
    )
