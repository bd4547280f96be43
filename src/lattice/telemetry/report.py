"""What a person reads when the run has ended: the first cause before anything else."""

from __future__ import annotations

import signal

from lattice.core.records import FailureRecord, OutcomeRecord

LONGEST = 60
"""lines of a traceback that are shown at most; the log has all"""


def ending(failure: FailureRecord) -> str:
    """Say how a worker ended."""
    if failure.kind == "hang":
        return "it hangs"
    if not failure.signal:
        return f"exit code {failure.code}"
    try:
        return f"signal {failure.signal} ({signal.Signals(failure.signal).name})"
    except ValueError:
        return f"signal {failure.signal}"


def report(run_id: str, outcome: OutcomeRecord) -> str:
    """
    Give the final report of a run.

    :param run_id: its id
    :param outcome: how it ended
    :return: lines of text
    """
    restarts = "no restarts" if not outcome.restarts else f"{outcome.restarts} restart{'s' * (outcome.restarts > 1)}"
    if outcome.succeeded:
        return f"run {run_id!r} succeeded in round {outcome.number} ({restarts}){_pace(outcome)}"
    if outcome.cause is None:
        return f"run {run_id!r} failed: {outcome.reason}"
    cause = outcome.cause
    lines = [
        f"run {run_id!r} failed in round {outcome.number} ({restarts}). First to fail:",
        f"  rank {cause.rank} on {cause.host} (local rank {cause.local_rank}, pid {cause.pid}): {ending(cause)}",
    ]
    lines += [f"  | {line}" for line in _shortened(cause.message)]
    if cause.hint:
        lines.append(f"  hint: {cause.hint}")
    if cause.log:
        lines.append(f"  log: {cause.log} on {cause.host}")
    lines += [
        f"  then rank {other.rank} on {other.host}: {ending(other)}{_last_line(other)}" for other in outcome.others
    ]
    return "\n".join(lines)


def _pace(outcome: OutcomeRecord) -> str:
    slowest = outcome.slowest
    if slowest is None:
        return ""
    beside = f", {1000 * outcome.typical:.3g} ms on a typical node" if outcome.typical != slowest.step else ""
    return (
        f"\nslowest: rank {slowest.rank} on {slowest.host}, {1000 * slowest.step:.3g} ms between heartbeats{beside}; "
        f"longest pause {slowest.longest:.3g} s"
    )


def _shortened(text: str) -> list[str]:
    lines = text.rstrip().splitlines()
    if len(lines) <= LONGEST:
        return lines
    return [*lines[:10], f"… {len(lines) - LONGEST} lines left out …", *lines[-(LONGEST - 10) :]]


def _last_line(failure: FailureRecord) -> str:
    lines = failure.message.rstrip().splitlines()
    return f": {lines[-1].strip()[:160]}" if lines else ""
