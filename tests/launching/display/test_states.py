"""How hosts stand, by what their agents told."""

from __future__ import annotations

from typing import Any

from lattice.launching.display.states import HostStatus, entered, reported

HOST = HostStatus("node1", 0, "connected", 1.0, pid=7)
REASON = "rank 1 on b exited with code 1, restart 1 of 3"


def after(*events: tuple[str, dict[str, Any]], host: HostStatus = HOST) -> HostStatus:
    for number, (event, facts) in enumerate(events, start=2):
        host = reported(host, event, facts, float(number))
    return host


STARTED = ("agent started", {"workers": 2})
ROUND = ("round started", {"round": 1, "restarts": 0})
WORKERS = ("workers started", {"pids": [11, 12]})


def test_from_the_first_word_to_running_workers() -> None:
    assert after(STARTED) == HostStatus("node1", 0, "joining", 2.0, pid=7, workers=2)
    assert after(STARTED, ROUND) == HostStatus("node1", 0, "starting", 3.0, pid=7, workers=2, round=1)
    running = after(STARTED, ROUND, WORKERS)
    assert (running.state, running.since, running.pids, running.waits_for) == ("running", 4.0, (11, 12), "")
    assert after(("worker exited", {"pid": 11}), host=running).pids == (12,)


def test_a_restart_and_an_end_are_told_apart() -> None:
    again = after(STARTED, ROUND, WORKERS, ("workers stopping", {"reason": REASON}))
    assert (again.state, again.reason) == ("restarting", REASON)
    assert after(("workers stopping", {"reason": "lost b"})).state == "restarting"
    assert after(("workers stopping", {"reason": "rank 1 on b exited with code 1"})).state == "stopping"
    second = after(("round started", {"round": 2, "restarts": 1}), host=again)
    assert (second.state, second.round, second.restarts, second.reason) == ("starting", 2, 1, "")


def test_a_pool_begins_anew_with_the_next_run() -> None:
    later = after(STARTED, ("round started", {"round": 3, "restarts": 2}), WORKERS)
    assert after(STARTED, host=entered(later, "ended", 9.0)) == HostStatus("node1", 0, "joining", 2.0, pid=7, workers=2)


def test_what_is_unknown_changes_nothing_and_the_same_state_goes_on() -> None:
    assert after(("goodput", {})) == HOST
    assert entered(HOST, "connected", 9.0) == HOST


def test_everything_that_is_not_running_waits_for_something() -> None:
    for state in ("connecting", "connected", "joining", "starting", "restarting", "stopping"):
        assert entered(HOST, state, 0.0).waits_for
