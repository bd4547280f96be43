"""TensorFlow: TF_CONFIG, from which MultiWorkerMirroredStrategy learns the cluster and its own place in it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from lattice.core.topology import Assignment
from lattice.environments.generic import defaults, notices

__all__ = ["defaults", "notices", "ports", "variables", "whole_roster"]


def ports(workers: int) -> int:
    """Reserve one port per worker: each of them serves gRPC to all the others."""
    return workers


def whole_roster() -> bool:
    """Ask for all members: TF_CONFIG names every worker."""
    return True


def variables(assignment: Assignment, local_rank: int, error_file: str) -> Mapping[str, str]:
    """List every worker's address in order of rank; the first one is the chief."""
    cluster = [
        f"[{member.address}]:{port}" if ":" in member.address else f"{member.address}:{port}"
        for member in sorted(assignment.members, key=lambda member: member.rank_offset)
        for port in member.ports[: member.workers]
    ]
    task = {"type": "worker", "index": assignment.entry.rank_offset + local_rank}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": cluster}, "task": task})}
