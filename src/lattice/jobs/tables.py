"""How jobs and nodes are shown: rows of text, for a terminal, a pipe or a program."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lattice.jobs.index import Record
from lattice.jobs.progress import (
    ENDED,
    FAILED,
    JOB_ENDED,
    LOST,
    RUN_ENDED,
    RUNNING,
    SUCCEEDED,
    UNKNOWN,
    UNREACHABLE,
    JobView,
    NodeView,
)
from lattice.launching.display.lines import Line, Tone, printable

NOTHING = "-"

JOB_COLUMNS = ("JOB", "STATE", "ON", "NODES", "WORKERS", "RESTARTS", "GOODPUT", "COST", "AGE", "LAST FAILURE")
NODE_COLUMNS = ("NODE", "ROLE", "HOST", "STATE", "PID", "RANKS", "ROUND", "LAST WORDS")
ALWAYS_NEW = ("AGE", "COST")
"""columns that change by themselves"""
ONLY_IF_TOLD = ("COST", "ROLE")
"""columns that are left out if no row has anything in them"""
GOOD, BAD = (RUNNING, SUCCEEDED, RUN_ENDED, JOB_ENDED), (FAILED, LOST, UNKNOWN, UNREACHABLE)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under names of columns, and how good the news of each row is."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    tones: tuple[Tone, ...]

    @property
    def news(self) -> object:
        """All but what changes by itself."""
        kept = [i for i, column in enumerate(self.columns) if column not in ALWAYS_NEW]
        return [[row[i] for i in kept] for row in self.rows]

    def lines(self) -> list[Line]:
        """Write it; the last column is as wide as it is."""
        widths = [max(len(row[i]) for row in (self.columns, *self.rows)) for i in range(len(self.columns) - 1)]
        tones: tuple[Tone, ...] = ("busy", *self.tones)
        return [
            Line(
                "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip(),
                tone,
            )
            for row, tone in zip((self.columns, *self.rows), tones, strict=True)
        ]


def jobs(found: Sequence[tuple[Record, JobView]], now: float) -> Table:
    """Write jobs as a table."""
    rows = [job_row(record, view, now) for record, view in found]
    return _table(JOB_COLUMNS, rows, [_tone(view.state) for _, view in found])


def nodes(found: Sequence[NodeView]) -> Table:
    """Write the nodes of a job as a table."""
    tones = [_tone(FAILED if node.status else node.end or node.state) for node in found]
    return _table(NODE_COLUMNS, [node_row(node) for node in found], tones)


def job_row(record: Record, view: JobView, now: float) -> tuple[str, ...]:
    """Write a job as a row of :data:`JOB_COLUMNS`."""
    present = sum(node.state == RUNNING for node in view.nodes)
    state = view.state if view.status in (None, 0) else f"{view.state} ({view.status})"
    return (
        record.job.name,
        state,
        record.job.place,
        f"{present} of {record.job.size}",
        str(view.workers or NOTHING),
        str(view.restarts),
        NOTHING if view.goodput is None else f"{view.goodput:.0%}",
        NOTHING if view.cost is None else f"${view.cost:.2f}",
        age((view.until or now) - (view.since or record.since)),
        printable(view.trouble) or NOTHING,
    )


def node_row(node: NodeView) -> tuple[str, ...]:
    """Write a node as a row of :data:`NODE_COLUMNS`."""
    state = f"{node.end or node.state} ({node.status})" if node.state == ENDED else node.state
    first, last = node.ranks or (None, None)
    ranks = NOTHING if first is None else f"{first}" if first == last else f"{first}-{last}"
    words = printable(node.report) or NOTHING
    pid, newest = str(node.pid or NOTHING), str(node.round or NOTHING)
    return (str(node.index), node.role or NOTHING, node.host, state, pid, ranks, newest, words)


def as_json(record: Record, view: JobView) -> dict[str, Any]:
    """Give all that is known of a job, but no secrets."""
    return {
        "name": record.job.name,
        "submission": record.submission,
        "on": record.job.place,
        "size": str(record.job.size),
        "state": view.state,
        "exit_code": view.status,
        "workers": view.workers,
        "restarts": view.restarts,
        "last_failure": view.trouble,
        "goodput": view.goodput,
        "submitted": record.since,
        "since": view.since,
        "until": view.until,
        **({} if view.cost is None else {"cost": view.cost}),
        "nodes": [node.dump() for node in view.nodes],
    }


def age(seconds: float) -> str:
    """Write a duration in two parts at most."""
    whole = max(int(seconds), 0)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part}{smaller}"
    return f"{whole}s"


def _table(columns: Sequence[str], rows: Sequence[tuple[str, ...]], tones: Sequence[Tone]) -> Table:
    kept = [
        i for i, column in enumerate(columns) if column not in ONLY_IF_TOLD or any(row[i] != NOTHING for row in rows)
    ]
    shown = tuple(tuple(row[i] for i in kept) for row in rows)
    return Table(tuple(columns[i] for i in kept), shown, tuple(tones))


def _tone(state: str) -> Tone:
    return "good" if state in GOOD else "bad" if state in BAD else "busy"


def now() -> float:
    """Give the time, as records have it."""
    return time.time()
