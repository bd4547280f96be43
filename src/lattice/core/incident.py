"""Why a round ended: all that went wrong in it is one incident with one cause."""

from __future__ import annotations

from collections.abc import Mapping, Set

from lattice.core.dataclass import dataclass, replace
from lattice.core.records import FailureRecord, ReportRecord, RoundRecord
from lattice.core.state import Seen
from lattice.core.topology import RosterEntry

REBINDS = 3
"""rounds in a row that may end for a taken master port without using the restart budget"""
NAMED = 8
"""hosts named in a reason at most"""
OTHERS = 32
"""further failures named in an outcome at most"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the end of a round means."""

    reason: str
    restarts: int
    """the job-wide count that the next round begins with"""
    kind: str
    """in a word: node (lost, or leaving), worker, hang, port, joined, or other"""
    final: bool = False
    """whether the run ends here"""
    plain: bool = False
    """whether the next round may begin at once: a worker failure within the budget, or newcomers, who come seldom"""
    rebinds: int = 0
    cause: FailureRecord | None = None
    others: tuple[FailureRecord, ...] = ()


def judge(
    lost: Set[str],
    reports: Mapping[str, Seen[ReportRecord]],
    current: RoundRecord,
    max_restarts: int,
    roster: tuple[RosterEntry, ...],
) -> Verdict:
    """
    Find the cause of a round's end.

    A node that was lost or left explains every broken connection elsewhere, so it is the cause whatever was reported
    first, and uses no budget. Otherwise it is the earliest report by the store's order; a worker that only lost the
    connection to a peer is never the cause while another failed by itself.

    :param lost: members that were lost or leaving
    :param reports: what members reported of this round
    :param current: the round
    :param max_restarts: the job-wide budget
    :param roster: the members
    """
    if lost:
        hosts = sorted(entry.host for entry in roster if entry.incarnation in lost) or ["a node"]
        return Verdict(f"lost {listed(hosts)}", current.restarts, "node")
    ordered = sorted((seen for seen in reports.values() if seen.record.failure), key=lambda seen: seen.created)
    failures = [seen.record.failure for seen in ordered if seen.record.failure]
    if not failures:
        kind = "joined" if current.planned else "other"
        return Verdict(current.reason, current.restarts, kind, plain=current.planned)
    failures.sort(key=lambda failure: failure.kind == "connection")
    cause, *others = failures
    reason = describe(cause)
    if cause.kind == "port" and cause.rank == 0 and current.rebinds < REBINDS:
        return Verdict(reason, current.restarts, "port", rebinds=current.rebinds + 1)
    kind = "hang" if cause.kind == "hang" else "worker"
    if current.restarts >= max_restarts:
        shortened = tuple(replace(other, message=other.message[-500:]) for other in others[:OTHERS])
        return Verdict(reason, current.restarts, kind, final=True, cause=cause, others=shortened)
    return Verdict(
        f"{reason}, restart {current.restarts + 1} of {max_restarts}",
        current.restarts + 1,
        kind,
        plain=True,
    )


def listed(hosts: list[str]) -> str:
    """Name some hosts, and say how many more there are: every agent gets this text, and people read it."""
    more = len(hosts) - NAMED
    return ", ".join(hosts) if more <= 0 else f"{', '.join(hosts[:NAMED])} and {more} more"


def describe(failure: FailureRecord) -> str:
    """Say in a few words which worker ended how."""
    if failure.kind == "hang":
        return f"rank {failure.rank} on {failure.host} hangs"
    how = f"was killed by signal {failure.signal}" if failure.signal else f"exited with code {failure.code}"
    known = {"port": "the master port was taken", "connection": "it lost a peer", "memory": "likely out of memory"}
    why = f": {known[failure.kind]}" if failure.kind in known else ""
    return f"rank {failure.rank} on {failure.host} {how}{why}"
