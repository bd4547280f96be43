"""A schedule as text: when, who, what happened, what was done about it."""

from __future__ import annotations

import json
from typing import Any

from lattice.core.events import (
    Changed,
    Connected,
    Disconnected,
    Finish,
    KeepAlive,
    Note,
    ReadRoster,
    ReadView,
    RosterRead,
    StartWorkers,
    StopWorkers,
    Ticked,
    Viewed,
    WorkersFailed,
    Write,
    Written,
)
from lattice.core.keyspace import KeyValue, Removed
from lattice.core.records import OutcomeRecord, RoundRecord


def render(trace: list[tuple[float, str, Any]], last: int | None = None) -> str:
    """Write a trace down, without what changed nothing."""
    lines = []
    for at, who, what in trace:
        if isinstance(what, tuple):
            event, effects = what
            done = [text for effect in effects if (text := _short(effect))]
            if not done and isinstance(event, Ticked | Written) and getattr(event, "succeeded", True):
                continue
            text = _short(event) + (" -> " + "; ".join(done) if done else "")
        else:
            text = _short(what)
        lines.append(f"{at:9.3f} {who:8} {text}")
    return "\n".join(lines[-last:] if last else lines)


def _short(what: Any) -> str:
    match what:
        case Note(event=event, text=text):
            return f"[{text or event}]"
        case Changed(batch=batch):
            return f"saw@{batch.revision} " + ", ".join(_change(change) for change in batch.changes)
        case Viewed(whole=whole, items=items, revision=revision):
            return f"viewed{' all' if whole else ''}@{revision} {', '.join(_change(item) for item in items)}"
        case Connected(lease=lease, items=items, revision=revision, emptied=emptied):
            state = " EMPTIED" if emptied else ""
            return f"connected@{revision}{state} lease {lease % 1000}: {', '.join(_change(item) for item in items)}"
        case Disconnected(reason=reason):
            return f"disconnected: {reason}"
        case Written(tag=tag, succeeded=succeeded, revision=revision):
            return f"written {tag}@{revision}" if succeeded else f"CONFLICT {tag}"
        case RosterRead(number=number, entries=entries):
            return f"roster {number}: {len(entries)} entries"
        case WorkersFailed(failure=failure):
            return f"workers FAILED ({failure.kind}, rank {failure.rank})"
        case Write(tag=tag):
            return f"write {tag}"
        case ReadView(whole=whole):
            return f"read {'all' if whole else 'control'}"
        case ReadRoster(number=number):
            return f"read roster {number}"
        case KeepAlive(lease=lease):
            return f"keep {lease % 1000}"
        case StartWorkers(assignment=assignment):
            return f"START round {assignment.round} as {assignment.entry.group_rank} of {assignment.nodes}"
        case StopWorkers(reason=reason):
            return f"STOP ({reason})"
        case Finish(status=status, message=message, event=event):
            return f"FINISH {status} {event} {message}"
        case RoundRecord():
            lost = f" lost {what.lost}" if what.lost else ""
            return f"ROUND {what.number} {what.phase} restarts {what.restarts} nodes {what.nodes}{lost}: {what.reason}"
        case OutcomeRecord():
            return f"OUTCOME {'succeeded' if what.succeeded else 'failed'} {what.status}: {what.reason}"
        case str():
            return what
        case _:
            return type(what).__name__


def _change(change: KeyValue | Removed) -> str:
    name = change.key.split("/", 3)[-1]
    if isinstance(change, Removed):
        return f"-{name}"
    fields = json.loads(change.value)
    facts = [str(fields[key]) for key in ("state", "phase", "number", "round", "incarnation", "uuid") if key in fields]
    return f"{name} ({' '.join(facts)})"
