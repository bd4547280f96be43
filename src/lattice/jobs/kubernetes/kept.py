"""What stays of a job of which the cluster has nothing any more: how its nodes ended, and the end of their output."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lattice.jobs.desk import home
from lattice.jobs.progress import NodeView


@dataclass(frozen=True, slots=True)
class Kept:
    """The last that was seen of a submission."""

    nodes: tuple[NodeView, ...] = ()
    logs: Mapping[int, str] = field(default_factory=dict)


def read(submission: str) -> Kept | None:
    """Give what was kept of a submission; None for nothing."""
    try:
        found = json.loads(_path(submission).read_bytes())
    except (OSError, ValueError):
        return None
    logs = {int(index): text for index, text in found["logs"].items()}
    return Kept(tuple(NodeView.load(one) for one in found["nodes"]), logs)


def keep(submission: str, nodes: Sequence[NodeView], logs: Mapping[int, str]) -> None:
    """Keep it, whole or not at all."""
    path = _path(submission)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = path.with_suffix(".new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"nodes": [node.dump() for node in nodes], "logs": dict(logs)}, file)
    fresh.replace(path)


def forget(submission: str) -> None:
    """Keep it no longer."""
    _path(submission).unlink(missing_ok=True)


def _path(submission: str) -> Path:
    return home(os.environ) / "kept" / f"{submission}.json"
