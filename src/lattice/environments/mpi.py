"""
Programs that read their place from mpirun's variables (Open MPI's, and MPICH's PMI ones).

These are variables only: there is no MPI runtime behind them, and MPI_Init in such a worker is alone in its world.
"""

from __future__ import annotations

from collections.abc import Mapping

from lattice.core.topology import Assignment
from lattice.environments.generic import defaults, notices, ports, whole_roster

__all__ = ["defaults", "notices", "ports", "variables", "whole_roster"]


def variables(assignment: Assignment, local_rank: int, error_file: str) -> Mapping[str, str]:
    """Give the ranks under mpirun's names, and the master's address, which such programs need to meet."""
    entry = assignment.entry
    rank, world = str(entry.rank_offset + local_rank), str(assignment.world)
    return {
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_SIZE": world,
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(entry.workers),
        # In Open MPI's words the node rank counts the processes on one node, not the nodes.
        "OMPI_COMM_WORLD_NODE_RANK": str(local_rank),
        "OMPI_UNIVERSE_SIZE": world,
        "PMI_RANK": rank,
        "PMI_SIZE": world,
        "MPI_LOCALRANKID": str(local_rank),
        "MPI_LOCALNRANKS": str(entry.workers),
        "MASTER_ADDR": assignment.master_address,
        "MASTER_PORT": str(assignment.master_port),
    }
