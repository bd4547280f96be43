"""Looks what is at a place for checkpoints."""

from __future__ import annotations

from lattice.checkpoint import log
from lattice.checkpoint.storage import open_storage


def steps(where: str) -> list[int]:
    """List the steps of what is complete, the newest first."""
    storage = open_storage(where)
    try:
        return [entry.step for entry in log.read(storage).saved]
    finally:
        if where.startswith("s3"):
            storage._client.close()  # type: ignore[attr-defined]
