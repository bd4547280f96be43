"""
Programs that read their place from horovodrun's variables, or from mpirun's.

HOROVOD_GLOO_RENDEZVOUS_* are left out on purpose: they name a server of Horovod's own, which Lattice does not run.
"""

from __future__ import annotations

from collections.abc import Mapping

from lattice.core.topology import Assignment
from lattice.environments import mpi
from lattice.environments.mpi import defaults, notices, ports, whole_roster

__all__ = ["defaults", "notices", "ports", "variables", "whole_roster"]


def variables(assignment: Assignment, local_rank: int, error_file: str) -> Mapping[str, str]:
    """Give the ranks under Horovod's names too; its "cross" ranks count nodes."""
    entry = assignment.entry
    return {
        **mpi.variables(assignment, local_rank, error_file),
        "HOROVOD_RANK": str(entry.rank_offset + local_rank),
        "HOROVOD_SIZE": str(assignment.world),
        "HOROVOD_LOCAL_RANK": str(local_rank),
        "HOROVOD_LOCAL_SIZE": str(entry.workers),
        "HOROVOD_CROSS_RANK": str(entry.group_rank),
        "HOROVOD_CROSS_SIZE": str(assignment.nodes),
    }
