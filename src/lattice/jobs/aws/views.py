"""How the nodes of a job on AWS stand, decided from what the group, the journals and the notes say. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lattice.jobs.aws.specs import RDZV
from lattice.jobs.progress import ENDED, LOST, PREPARED, RUNNING, NodeView, ends_job, read_journal


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a job's workers."""

    present: tuple[str, ...]
    """instances that are there, or about to be"""
    wanted: int
    """how many there should be"""
    journals: Mapping[str, bytes] = field(default_factory=dict)
    notes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """of nodes, and of etcd's instance"""
    trouble: str = ""
    """why there are fewer instances than there should be"""
    ends: str = "always"
    """when the end of their run is the job's"""

    def ended(self) -> bool:
        """Tell whether the job has ended with their run."""
        return any(ends_job(_told(journal), self.ends) for journal in self.journals.values())


@dataclass(frozen=True, slots=True)
class Part:
    """What is known of the instances of one role."""

    seen: Seen
    seats: int
    """how many nodes it was to have at last"""
    most: int
    """how many it can have"""
    role: str = ""


def views_of_all(parts: Iterable[Part]) -> list[NodeView]:
    """Give each node's view, role after role; each has the numbers that a job gives it."""
    found: list[NodeView] = []
    first = 0
    for part in parts:
        own = views(part.seen, part.seats)
        # A role has no more numbers than nodes: who comes in excess, for a moment, hides the last one.
        placed = {min(view.index, part.most - 1) if part.role else view.index: view for view in own}
        found += [replace(view, index=first + index, role=part.role) for index, view in placed.items()]
        first += part.most
    return found


def views(seen: Seen, seats: int) -> list[NodeView]:
    """
    Give each node's view. Who replaces another sits in its place.

    :param seen: what is known
    :param seats: how many nodes the job, or the role, was to have at last
    """
    known = sorted({*seen.present, *seen.journals, *_failed(seen)})
    nodes = sorted((_view(seen, instance) for instance in known), key=lambda view: (view.since or 1e18, view.host))
    placed: dict[int, NodeView] = {}
    for node in nodes:
        index = next((i for i in range(seats) if i not in placed), None)
        if index is None:
            empty = (
                i for i, old in sorted(placed.items()) if old.host not in seen.present and not ends_job(old, seen.ends)
            )
            index = next(empty, len(placed))
        placed[index] = replace(node, index=index)
    for index in range(max(seats, seen.wanted)):
        if index not in placed and len(seen.present) < seen.wanted:
            placed[index] = NodeView(index, report=seen.trouble or _of_etcd(seen) or "waiting for an instance")
    return [placed[index] for index in sorted(placed)]


def last_words(console: str) -> str:
    """Give the last thing that an instance's user data said of itself."""
    said = [line.partition("lattice: ")[2].strip() for line in console.splitlines() if "lattice: " in line]
    return said[-1] if said else ""


def _failed(seen: Seen) -> Iterable[str]:
    """Nodes that ended before their agent said a word."""
    return (name for name, note in seen.notes.items() if "code" in note)


def _told(journal: bytes) -> NodeView:
    return read_journal(journal.splitlines(), NodeView(0))


def _of_etcd(seen: Seen) -> str:
    words = seen.notes.get(RDZV, {}).get("words")
    return f"etcd: {words}" if words else ""


def _view(seen: Seen, instance: str) -> NodeView:
    view = replace(_told(seen.journals.get(instance, b"")), host=instance)
    note = seen.notes.get(instance, {})
    if view.state == ENDED:
        return view
    if "code" in note and not view.since:
        return replace(view, state=ENDED, status=note["code"], report=note["words"].strip() or "it said nothing")
    if instance in seen.present and "code" not in note:
        state = RUNNING if view.since else PREPARED
        trouble = note.get("words") or _of_etcd(seen)
        return replace(view, state=state, report=trouble if note.get("lasting") or not view.round else "")
    return replace(view, state=LOST, report=note.get("words", "").strip())


def parse_note(body: bytes) -> dict[str, Any]:
    """Read a note; one that is no note says nothing."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
