"""Why a round ended: one cause, and whether it costs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lattice.core.incident import REBINDS, judge
from lattice.core.records import FailureRecord, ReportRecord, RoundRecord
from lattice.core.state import Seen
from lattice.core.topology import RosterEntry

ROSTER = tuple(RosterEntry(f"n{rank}", rank, rank, 1, f"h{rank}", "", (1,)) for rank in range(4))


def a_round(restarts: int = 0, rebinds: int = 0) -> RoundRecord:
    return RoundRecord(3, RoundRecord.STOPPING, restarts, "why", "h0", 1, 4, 4, ("n0",), rebinds=rebinds)


@st.composite
def reports(draw: st.DrawFn) -> dict[str, Seen[ReportRecord]]:
    found = {}
    revisions = draw(st.permutations(range(10, 14)))
    for rank in draw(st.sets(st.integers(0, 3))):
        kind = draw(st.sampled_from(("worker", "connection", "port", "done")))
        failure = FailureRecord(rank, 0, f"h{rank}", 1, draw(st.integers(1, 3)), kind=kind)
        report = ReportRecord(f"n{rank}", None if kind == "done" else failure)
        # A report may be written again: only its first revision tells when it came.
        found[f"n{rank}"] = Seen(report, revisions[rank], draw(st.integers(20, 30)))
    return found


@given(reports(), st.sets(st.sampled_from(["n0", "n3"]), min_size=1), st.integers(0, 2))
def test_a_lost_node_is_the_cause_and_free(found: dict[str, Seen[ReportRecord]], lost: set[str], restarts: int) -> None:
    verdict = judge(lost, found, a_round(restarts), 0, ROSTER)
    assert not verdict.final and not verdict.plain and verdict.restarts == restarts
    assert all(name.replace("n", "h") in verdict.reason for name in lost)


@given(reports(), st.integers(0, 3), st.integers(0, 3))
def test_the_budget_is_used_one_by_one_and_never_exceeded(
    found: dict[str, Seen[ReportRecord]], restarts: int, budget: int
) -> None:
    verdict = judge(set(), found, a_round(restarts, rebinds=REBINDS), budget, ROSTER)
    failed = any(seen.record.failure for seen in found.values())
    assert verdict.final == (failed and restarts >= budget)
    assert verdict.restarts == restarts + (failed and not verdict.final)
    assert verdict.plain == (verdict.restarts > restarts)


@given(reports())
def test_the_first_to_fail_by_itself_is_the_cause(found: dict[str, Seen[ReportRecord]]) -> None:
    verdict = judge(set(), found, a_round(rebinds=REBINDS), 0, ROSTER)
    ordered = sorted(found.values(), key=lambda seen: seen.created)
    failures = [seen.record.failure for seen in ordered if seen.record.failure]
    by_themselves = [failure for failure in failures if failure.kind != "connection"]
    assert verdict.cause == next(iter([*by_themselves, *failures]), None)
    assert sorted(other.rank for other in verdict.others) == sorted(
        failure.rank for failure in failures if failure != verdict.cause
    )


def test_a_taken_port_of_rank_0_is_free_for_a_while() -> None:
    failure = FailureRecord(0, 0, "h0", 1, 1, kind="port")
    found = {"n0": Seen(ReportRecord("n0", failure), 10, 10)}
    for rebinds in range(REBINDS):
        verdict = judge(set(), found, a_round(rebinds=rebinds), 0, ROSTER)
        assert not verdict.final and verdict.restarts == 0 and verdict.rebinds == rebinds + 1
    assert judge(set(), found, a_round(rebinds=REBINDS), 0, ROSTER).final
