from __future__ import annotations

import json
from typing import Any

from lattice.jobs.aws.tail import LATE, Tail, line_of
from lattice.jobs.aws.views import Seen, last_words, parse_note, views
from lattice.jobs.progress import judge


def journal(started: int, *more: dict[str, Any]) -> bytes:
    lines = [{"event": "agent started", "host": "h", "workers": 1}, *more]
    stamped = [{"time": f"2026-01-01T00:00:{started:02d}+00:00", **line} for line in lines]
    return b"".join(json.dumps(line).encode() + b"\n" for line in stamped)


ROUND = {"event": "round started", "round": 1, "restarts": 0, "nodes": 2, "world": 2, "reason": "first round"}
ENDED = {"event": "run ended", "status": 0, "reason": None}


def states(seen: Seen, seats: int = 2) -> list[tuple[str, str]]:
    return [(view.host, view.state) for view in views(seen, seats)]


def test_a_job_whose_instances_are_not_there_yet_waits_and_says_why() -> None:
    seen = Seen((), 2, trouble="You have requested more vCPU capacity than your limit")
    assert [view.report for view in views(seen, 2)] == [seen.trouble] * 2
    assert judge(views(seen, 2), killed=False).state == "waiting"
    assert states(Seen(("i-1",), 2)) == [("i-1", "prepared"), ("", "prepared")]


def test_a_job_without_a_group_and_without_a_word_is_lost() -> None:
    assert judge(views(Seen((), 0), 2), killed=False).state == "lost"


def test_who_replaces_another_sits_in_its_place() -> None:
    journals = {"i-9": journal(1, ROUND), "i-5": journal(2, ROUND)}
    assert states(Seen(("i-9", "i-5"), 2, journals)) == [("i-9", "running"), ("i-5", "running")]
    assert states(Seen(("i-5",), 2, journals)) == [("i-9", "lost"), ("i-5", "running")]
    assert states(Seen(("i-5", "i-1"), 2, journals)) == [("i-1", "prepared"), ("i-5", "running")]
    assert states(Seen(("i-5", "i-1"), 2, {**journals, "i-1": journal(3)})) == [("i-1", "running"), ("i-5", "running")]


def test_the_truth_stays_when_the_instances_are_gone() -> None:
    journals = {"i-1": journal(1, ROUND, ENDED), "i-2": journal(2, ROUND)}
    seen = Seen((), 0, journals)
    assert seen.ended()
    assert states(seen) == [("i-1", "ended"), ("i-2", "lost")]
    found = judge(views(seen, 2), killed=False)
    assert (found.state, found.status) == ("succeeded", 0)


def test_a_node_that_failed_before_its_agent_spoke() -> None:
    seen = Seen((), 0, {}, {"i-1": {"code": 2, "words": "no such script\n"}, "i-2": {"code": 2, "words": ""}})
    found = judge(views(seen, 2), killed=False)
    assert (found.state, found.status) == ("failed", 2)
    assert [view.report for view in found.nodes] == ["no such script", "it said nothing"]


def test_an_agent_that_was_killed_is_lost_with_its_last_words() -> None:
    seen = Seen(("i-1",), 1, {"i-1": journal(1, ROUND)}, {"i-1": {"code": 137, "words": "out of memory"}})
    (view,) = views(seen, 1)
    assert (view.state, view.report) == ("lost", "out of memory")


def test_trouble_on_the_way_is_shown_until_there_is_a_round() -> None:
    notes = {"rdzv": {"words": "there is no etcd in the image"}, "i-2": {"words": "is not what was submitted"}}
    seen = Seen(("i-1", "i-2"), 2, {"i-1": journal(1)}, notes)
    assert [view.report for view in views(seen, 2)] == ["etcd: there is no etcd in the image", notes["i-2"]["words"]]
    seen = Seen(("i-1",), 1, {"i-1": journal(1, ROUND)}, notes)
    assert [view.report for view in views(seen, 1)] == [""]
    assert [view.report for view in views(Seen((), 1, {}, notes), 1)] == ["etcd: there is no etcd in the image"]


def test_who_left_is_replaced_too_and_lasting_trouble_is_shown_in_a_round() -> None:
    left = {"event": "left", "status": 143, "reason": None}
    journals = {"i-1": journal(1, ROUND), "i-2": journal(2, ROUND, left), "i-3": journal(3, ROUND)}
    notes = {"i-1": {"words": "the lease cannot be moved", "lasting": True}}
    found = views(Seen(("i-1", "i-3"), 2, journals, notes), 2)
    assert [(view.host, view.report) for view in found] == [("i-1", "the lease cannot be moved"), ("i-3", "")]


def test_a_console_is_read_for_our_last_words() -> None:
    assert last_words("boot\n[ 12.3] cloud-init[9]: lattice: cannot pull x: denied\nlogin:") == "cannot pull x: denied"
    assert last_words("boot") == ""
    assert parse_note(b"no json") == {} == parse_note(b"[]")


def event(name: str, time: int, message: str = "") -> dict[str, Any]:
    return {"eventId": name, "timestamp": time, "message": message, "logStreamName": "s/i-1"}


def test_events_that_come_late_or_again_are_given_once() -> None:
    tail = Tail()
    assert [one["eventId"] for one in tail.new([event("b", 2000), event("a", 1000)])] == ["a", "b"]
    assert tail.start == 0
    assert not tail.new([event("a", 1000), event("b", 2000)])
    assert [one["eventId"] for one in tail.new([event("late", 1500), event("b", 2000), event("c", 2000)])] == [
        "late",
        "c",
    ]
    far = 2000 + 10 * LATE
    assert [one["eventId"] for one in tail.new([event("far", far)])] == ["far"]
    assert tail.start == far - LATE
    assert not tail.new([event("far", far)])


def test_lines_of_a_rank_are_as_it_wrote_them() -> None:
    assert line_of("[rank 1] [rank 2]  x ", 1) == b"[rank 2]  x \n"
    assert line_of("[rank 1 ip-10-0-0-1] x\n", 1) == b"x\n"
    assert line_of("[rank 1] ", 1) == b"\n"
    assert line_of("[rank 11] x", 1) is None
    assert line_of("lattice: round 1", 1) is None
    assert line_of("[rank 1] x", None) == b"[rank 1] x\n"
