"""Who takes part in a round and under which ranks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One node's place in a round."""

    incarnation: str
    group_rank: int
    rank_offset: int
    workers: int
    host: str
    address: str
    ports: tuple[int, ...]
    """ports reserved on that node for this round; the first one is for the master if the node has group rank 0"""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one node needs to start its workers of a round."""

    run_id: str
    round: int
    restarts: int
    max_restarts: int
    role: str
    entry: RosterEntry
    nodes: int
    world: int
    master_address: str
    master_port: int
    members: tuple[RosterEntry, ...] = ()
    """all entries in order of group rank, only for environments that need them (else empty)"""
