"""Any program: nothing beyond the identity that every worker gets."""

from __future__ import annotations

from collections.abc import Mapping

from lattice.core.topology import Assignment


def ports(workers: int) -> int:
    """Reserve one port, for the master."""
    return 1


def whole_roster() -> bool:
    """Need only the node's own entry."""
    return False


def variables(assignment: Assignment, local_rank: int, error_file: str) -> Mapping[str, str]:
    """Add nothing."""
    return {}


def defaults(workers: int, inherited: Mapping[str, str]) -> Mapping[str, str]:
    """Set nothing."""
    return {}


def notices(workers: int, inherited: Mapping[str, str]) -> tuple[str, ...]:
    """Say nothing."""
    return ()
