"""
The variables that every worker gets, whatever its framework is.

No name here may be the name of an option's variable: an agent that runs inside a worker would take it for its own.
"""

from __future__ import annotations

from lattice.core.topology import Assignment


def identity(assignment: Assignment, local_rank: int) -> dict[str, str]:
    """
    Tell one worker who it is.

    :param assignment: the node's place in the round
    :param local_rank: the worker on this node
    """
    entry = assignment.entry
    return {
        "LATTICE_RUN_ID": assignment.run_id,
        "LATTICE_ROUND": str(assignment.round),
        "LATTICE_RESTART_COUNT": str(assignment.restarts),
        "LATTICE_WORKER_ROLE": assignment.role,
        "LATTICE_RANK": str(entry.rank_offset + local_rank),
        "LATTICE_LOCAL_RANK": str(local_rank),
        "LATTICE_GROUP_RANK": str(entry.group_rank),
        "LATTICE_WORLD_SIZE": str(assignment.world),
        "LATTICE_LOCAL_WORLD_SIZE": str(entry.workers),
        "LATTICE_GROUP_WORLD_SIZE": str(assignment.nodes),
    }
