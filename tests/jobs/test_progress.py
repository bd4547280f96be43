"""How a job stands, from what its nodes wrote down."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from lattice.core.spec import NodeRange
from lattice.jobs.job import EACH, Code, Job, Role
from lattice.jobs.progress import ENDED, LOST, PREPARED, RUNNING, UNREACHABLE, NodeView, judge, read_journal, waits_for

STARTED = {"time": "2026-01-01T00:00:00+00:00", "event": "agent started", "host": "h", "workers": 2}
ROUND = {"time": "2026-01-01T00:00:01+00:00", "event": "round started", "round": 1, "restarts": 0, "nodes": 2}
ROUND |= {"world": 4, "reason": "first round"}
WORKERS = {"time": "2026-01-01T00:00:01+00:00", "event": "workers started", "round": 1, "ranks": [2, 3]}
SECOND = ROUND | {"round": 2, "restarts": 1, "reason": "rank 1 on h exited with code 7, restart 1 of 1"}
GOODPUT = {"time": "2026-01-01T00:00:09+00:00", "event": "goodput", "goodput": 0.5}
REPORT = "run 'j' failed in round 1 (no restarts). First to fail:\n  rank 1 on h (pid 3): exit code 7\n  log: x"
ENDED_WELL = {"time": "2026-01-01T00:00:10+00:00", "event": "run ended", "status": 0, "reason": "fine"}
ENDED_BADLY = ENDED_WELL | {"status": 7, "reason": REPORT}
LEFT = ENDED_WELL | {"event": "left", "status": 143, "reason": ""}
JOB_ENDED = ENDED_WELL | {"event": "job ended", "reason": "the job ended: role learner succeeded"}
JOB_FAILED = JOB_ENDED | {"status": 7, "reason": "the job ended: role learner failed: rank 0 on h: exit code 7"}


def view(*events: dict[str, object], state: str = RUNNING, index: int = 0) -> NodeView:
    read = read_journal([json.dumps(event) for event in events], NodeView(index))
    return read if read.state == ENDED else replace(read, state=state)


def test_a_journal_tells_how_a_node_stands() -> None:
    found = view(STARTED, ROUND, WORKERS)
    assert (found.host, found.workers, found.round, found.world, found.ranks) == ("h", 2, 1, 4, (2, 3))
    assert found.until is None
    assert view(STARTED, ROUND, WORKERS, SECOND).trouble.startswith("rank 1 on h exited")
    done = view(STARTED, ROUND, WORKERS, GOODPUT, ENDED_BADLY)
    assert (done.state, done.status, done.goodput, done.end) == (ENDED, 7, 0.5, "run ended")
    assert done.until is not None and done.until - done.since == 10.0


def test_half_a_line_is_no_line() -> None:
    whole = json.dumps(STARTED)
    assert read_journal([whole, whole[: len(whole) // 2]], NodeView(0)).workers == 2


def test_an_agent_that_was_started_again_has_not_ended() -> None:
    again = view(STARTED, ROUND, WORKERS, LEFT, STARTED)
    assert (again.state, again.status, again.end, again.round) == (RUNNING, None, "", 0)


@pytest.mark.parametrize(
    ("nodes", "killed", "state", "status"),
    [
        ([view(STARTED), view(STARTED)], False, "waiting", None),
        ([view(STARTED, ROUND), view(STARTED)], False, "running", None),
        ([view(STARTED, ROUND, ENDED_WELL), view(STARTED, ROUND)], False, "running", None),
        ([view(STARTED, ROUND, ENDED_WELL), view(STARTED, ROUND, ENDED_WELL)], False, "succeeded", 0),
        ([view(STARTED, ROUND, ENDED_BADLY), view(STARTED, ROUND, ENDED_BADLY)], False, "failed", 7),
        ([view(STARTED, ROUND, ENDED_WELL), view(STARTED, ROUND, LEFT)], True, "succeeded", 0),
        ([view(STARTED, ROUND, LEFT), view(STARTED, ROUND, LEFT)], True, "killed", 143),
        ([view(STARTED, ROUND, state=LOST), view(STARTED, ROUND, state=LOST)], False, "lost", 1),
        ([view(STARTED, ROUND, state=LOST), view(STARTED, ROUND)], False, "running", None),
        ([view(STARTED, ROUND, state=UNREACHABLE)], False, "running", None),
        ([NodeView(0, state=PREPARED)], False, "waiting", None),
        ([NodeView(0, state=PREPARED)], True, "killed", 143),
        ([], False, "lost", 1),
    ],
)
def test_a_job_is_judged_by_its_nodes(nodes: list[NodeView], killed: bool, state: str, status: int | None) -> None:
    found = judge(nodes, killed=killed)
    assert (found.state, found.status) == (state, status)


def test_a_job_that_has_not_begun_says_what_it_waits_for() -> None:
    queued = NodeView(1, state=PREPARED, report="SLURM says PENDING")
    waiting = judge([view(STARTED), queued, replace(queued, index=2)], killed=False)
    assert waits_for(waiting) == ": 1 of 3 nodes are there, SLURM says PENDING"
    assert waits_for(judge([view(STARTED, ROUND), queued], killed=False)) == ""


def test_the_last_failure_names_who_failed_first() -> None:
    assert judge([view(STARTED, ROUND, ENDED_BADLY)], killed=False).trouble == "rank 1 on h (pid 3): exit code 7"


def race(if_failed: str = "end_job", group: str = EACH) -> Job:
    """One learner and two workers."""
    roles = (
        Role("learner", NodeRange(1, 1), "a.py"),
        Role("worker", NodeRange(1, 2), "b.py", group=group, if_failed=if_failed),
    )
    return Job("race", "local", NodeRange(2, 3), Code("project"), roles=roles)


def nodes_of(*journals: tuple[dict[str, object], ...], state: str = RUNNING) -> list[NodeView]:
    return [view(*events, index=index, state=state) for index, events in enumerate(journals)]


BEGUN = (STARTED, ROUND)
WELL, BADLY, TOLD, TOLD_BADLY, GONE = ((*BEGUN, one) for one in (ENDED_WELL, ENDED_BADLY, JOB_ENDED, JOB_FAILED, LEFT))


@pytest.mark.parametrize(
    ("journals", "if_failed", "state", "status"),
    [
        ((BEGUN, BEGUN, BEGUN), "end_job", "running", None),
        (((STARTED,), BEGUN, BEGUN), "end_job", "waiting", None),
        ((WELL, BEGUN, TOLD), "end_job", "running", None),
        ((WELL, TOLD, TOLD), "end_job", "succeeded", 0),
        ((WELL, TOLD, GONE), "end_job", "succeeded", 0),
        ((WELL, BADLY, TOLD), "end_job", "succeeded", 0),
        ((BADLY, TOLD_BADLY, TOLD_BADLY), "end_job", "failed", 7),
        ((TOLD_BADLY, BADLY, TOLD_BADLY), "end_job", "failed", 7),
        ((WELL, BADLY, TOLD_BADLY), "end_job", "failed", 7),
        ((GONE, BADLY, GONE), "end_job", "failed", 7),
        ((BEGUN, BADLY, WELL), "go_on", "running", None),
        ((WELL, BADLY, BADLY), "go_on", "succeeded", 0),
    ],
)
def test_a_job_with_roles_is_judged_by_what_ends_it(
    journals: tuple[tuple[dict[str, object], ...], ...], if_failed: str, state: str, status: int | None
) -> None:
    found = judge(nodes_of(*journals), killed=False, job=race(if_failed))
    assert (found.state, found.status) == (state, status)
    assert [node.role for node in found.nodes] == ["learner", "worker", "worker"]


def test_a_node_that_was_sent_away_or_may_fail_fails_no_job() -> None:
    lost = replace(view(*BEGUN, state=LOST), index=0)
    sent_away = nodes_of(BEGUN, GONE, GONE)[1:]
    assert judge([lost, *sent_away], killed=False, job=race()).state == "lost"
    failed = nodes_of(BEGUN, BADLY, BADLY)[1:]
    assert judge([lost, *failed], killed=False, job=race("go_on")).state == "lost"
    queued = NodeView(0, state=PREPARED)
    assert judge([queued, *failed], killed=False, job=race("go_on")).state == "waiting"
    assert judge([queued, *failed], killed=False, job=race()).state == "failed"
    assert judge([lost, *sent_away], killed=True, job=race()).state == "killed"


def test_what_is_counted_is_counted_over_all_runs() -> None:
    good, bad = GOODPUT | {"goodput": 0.9}, GOODPUT | {"goodput": 0.1}
    nodes = nodes_of((*BEGUN, SECOND, good), (*BEGUN, SECOND, bad), BEGUN)
    apart = judge(nodes, killed=False, job=race())
    assert (apart.restarts, apart.workers, apart.goodput) == (2, 12, 0.9)
    together = judge(nodes, killed=False, job=race(group="crowd"))
    assert (together.restarts, together.workers) == (2, 8)
    assert apart.trouble == "learner: rank 1 on h exited with code 7, restart 1 of 1"


def test_the_last_failure_names_the_role() -> None:
    def trouble(*journals: tuple[dict[str, object], ...]) -> str:
        return judge(nodes_of(*journals), killed=False, job=race("go_on")).trouble

    assert trouble(BEGUN, BADLY, BEGUN) == "worker: rank 1 on h (pid 3): exit code 7"
    assert trouble(TOLD_BADLY, BEGUN, TOLD_BADLY) == "the job ended: role learner failed: rank 0 on h: exit code 7"
    assert trouble(BADLY, BADLY, TOLD_BADLY) == "learner: rank 1 on h (pid 3): exit code 7"
    assert trouble(WELL, TOLD, TOLD) == ""
