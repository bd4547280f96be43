"""
JAX: what ``jax.distributed.initialize()`` reads when it is called without arguments.

JAX takes the coordinator from JAX_COORDINATOR_ADDRESS, but the number and the index of processes only from a cluster
that it recognises. Open MPI is the first one it looks for and its marks are plain variables, so workers get these: the
mark itself is never followed because the coordinator is given. A program may also pass JAX_NUM_PROCESSES and
JAX_PROCESS_ID on by itself.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from lattice.core.topology import Assignment
from lattice.environments.generic import notices, ports, whole_roster

__all__ = ["defaults", "notices", "ports", "variables", "whole_roster"]

NVIDIA_DEVICES = "/proc/driver/nvidia/gpus"


def variables(assignment: Assignment, local_rank: int, error_file: str) -> Mapping[str, str]:
    """Name the coordinator, which rank 0 starts on the reserved port, and the worker's place."""
    rank, world = str(assignment.entry.rank_offset + local_rank), str(assignment.world)
    host = assignment.master_address
    coordinator = f"[{host}]:{assignment.master_port}" if ":" in host else f"{host}:{assignment.master_port}"
    return {
        "JAX_COORDINATOR_ADDRESS": coordinator,
        "JAX_NUM_PROCESSES": world,
        "JAX_PROCESS_ID": rank,
        "OMPI_MCA_orte_hnp_uri": f"0.0;tcp://{coordinator}",
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_SIZE": world,
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
    }


def defaults(workers: int, inherited: Mapping[str, str]) -> Mapping[str, str]:
    """Give a node's only worker all of its GPUs: with these marks JAX would give it the first one."""
    if workers > 1 or "JAX_LOCAL_DEVICE_IDS" in inherited:
        return {}
    visible = inherited.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        count = len(os.listdir(NVIDIA_DEVICES)) if os.path.isdir(NVIDIA_DEVICES) else 0  # noqa: PTH112, PTH208
    else:
        count = len([device for device in visible.split(",") if device.strip()])
    return {"JAX_LOCAL_DEVICE_IDS": ",".join(map(str, range(count)))} if count else {}
