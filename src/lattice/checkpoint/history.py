"""
What happened to the checkpoints at one place, as entries of a log, and what follows from it. Pure.

The log is the truth: a checkpoint is there once its entry is, and entries are only ever made by creating the next
number, which one of several writers can. So everybody sees the same order, and whoever has been overtaken finds out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

VERSION = 1


@dataclass(frozen=True, slots=True)
class Opened:
    """From here on a round of a run writes, and nobody who came before it."""

    token: str
    """made up by the writer; the checkpoints that it may add carry it"""
    run: str
    round: int
    at: float
    """seconds since 1970, as told by the writer's clock; for people and for estimates only"""
    source: str = ""
    """the folder that it went on from"""
    restarts: int = 0
    """failures of the run so far"""
    since: float = 0.0
    """when the run first wrote here"""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint is complete."""

    token: str
    """of the opening that allowed it"""
    step: int
    folder: str
    files: Mapping[str, tuple[int, str]]
    """size and SHA-256 by name"""
    at: float
    metric: float | None = None
    stall: float = 0.0
    """seconds for which training stood still"""


Entry = Opened | Saved


@dataclass(frozen=True, slots=True)
class Policy:
    """Which checkpoints stay: one that any rule wants to keep does."""

    last: int = 3
    every: int = 0
    """those whose step is a multiple of it; 0 for none"""
    best: int = 0
    """so many of the best metric"""
    lowest: bool = False
    """whether a lower metric is better"""


@dataclass(frozen=True, slots=True)
class History:
    """The entries by number."""

    entries: Mapping[int, Entry] = field(default_factory=dict)

    @property
    def next(self) -> int:
        """Give the number of the next entry."""
        return max(self.entries, default=0) + 1

    @property
    def opening(self) -> Opened | None:
        """Give the last opening: whose writer may write."""
        return next(
            (entry for _, entry in sorted(self.entries.items(), reverse=True) if isinstance(entry, Opened)), None
        )

    @property
    def saved(self) -> list[Saved]:
        """Give the complete checkpoints, the newest first. Not by step: who went back has overtaken what was ahead."""
        return [entry for _, entry in sorted(self.entries.items(), reverse=True) if isinstance(entry, Saved)]

    def refusal(self, entry: Entry) -> str:
        """Say why an entry may not be the next; nothing if it may."""
        last = self.opening
        if isinstance(entry, Opened):
            if last is not None and last.run == entry.run and last.round > entry.round:
                return f"round {last.round} of run {entry.run!r} has taken over, and this is of round {entry.round}"
            return ""
        if last is None or last.token != entry.token:
            who = f"round {last.round} of run {last.run!r}" if last is not None else "somebody"
            return f"{who} has taken over"
        return ""

    def unwanted(self, policy: Policy) -> dict[int, Entry]:
        """Tell which entries, checkpoints with their files, can go; never the newest entry, nor the last opening."""
        saved = {number: entry for number, entry in self.entries.items() if isinstance(entry, Saved)}
        # Not a number is no better or worse than any other, and would leave the rest unsorted.
        measured = [number for number, entry in saved.items() if not math.isnan(_metric(entry))]
        measured.sort(key=lambda number: _metric(saved[number]) * (1 if policy.lowest else -1))
        kept = {*sorted(saved, reverse=True)[: max(policy.last, 1)], *measured[: policy.best], self.next - 1}
        if policy.every:
            kept |= {number for number, entry in saved.items() if entry.step % policy.every == 0}
        opening = self.opening
        return {number: entry for number, entry in self.entries.items() if number not in kept and entry is not opening}

    def stray(self, folders: Iterable[str], token: str) -> list[str]:
        """Tell which folders no checkpoint has, and none will: half of what somebody wrote who has been overtaken."""
        known = {entry.folder for entry in self.saved}
        if self.opening is None or self.opening.token != token:
            return []
        return [name for name in folders if name.startswith(STEP) and name not in known and token_of(name) != token]


def _metric(entry: Saved) -> float:
    return math.nan if entry.metric is None else entry.metric


STEP = "step_"


def folder_of(step: int, token: str, again: int) -> str:
    """Name the folder of a checkpoint; nobody else's has this name, as nobody else has this token."""
    return f"{STEP}{step:012d}-{token}" + (f".{again}" if again else "")


def token_of(folder: str) -> str:
    """Tell who made a folder."""
    return folder.rpartition("-")[2].partition(".")[0]


def encoded(entry: Entry) -> bytes:
    """Give the bytes of an entry."""
    kind = "opened" if isinstance(entry, Opened) else "saved"
    return json.dumps({"v": VERSION, "kind": kind, **asdict(entry)}, indent=1).encode()


def decoded(data: bytes) -> Entry | None:
    """Read an entry; None if it is none that this Lattice can read."""
    try:
        fields: dict[str, Any] = json.loads(data)
        if fields.pop("v") != VERSION:
            return None
        if fields.pop("kind") == "opened":
            return Opened(**fields)
        fields["files"] = {str(name): (int(size), str(digest)) for name, (size, digest) in fields["files"].items()}
        return Saved(**fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def history(entries: Iterable[tuple[int, bytes]]) -> History:
    """Read a log; an entry that cannot be read counts as an opening by somebody else, so that nobody overtakes it."""
    read = {number: decoded(data) or Opened("?", "?", 0, 0.0) for number, data in entries}
    return History(read)
