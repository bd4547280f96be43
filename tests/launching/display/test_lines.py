"""What is shown of hosts, as text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lattice.launching.display.lines import Line, PlainLines, block, clock, listed, printable
from lattice.launching.display.states import HostStatus, State


def host(name: str, state: State, *, agent: int = 0, since: float = 0.0, reason: str = "") -> HostStatus:
    pids = tuple(range(8)) if state == "running" else ()
    return HostStatus(name, agent, state, since, workers=8, pids=pids, round=1, reason=reason)


@pytest.mark.parametrize(
    ("state", "reason", "text"),
    [
        ("connecting", "", "connecting… 3 s"),
        ("connected", "", "connected… 3 s"),
        ("joining", "", "waiting for the other hosts… 3 s"),
        ("starting", "", "starting 8 workers… 3 s"),
        ("running", "", "8 workers, round 1, 3 s"),
        ("restarting", "rank 1 on b: killed, restart 1 of 3", "restarting (1 of 3)… 3 s: rank 1 on b: killed"),
        ("restarting", "lost b", "restarting… 3 s: lost b"),
        ("stopping", "rank 1 on b failed", "stopping… 3 s: rank 1 on b failed"),
        ("lost", "no route\nto it", "lost: no route"),
        ("ended", "", "ended"),
    ],
)
def test_a_line_for_each_state(state: State, reason: str, text: str) -> None:
    (line,) = block([host("node1", state, reason=reason)], 3.2, 10)
    assert line.text == f"node1  {text}"


def test_names_are_aligned_and_colours_mean_something() -> None:
    lines = block([host("a", "running"), host("longer", "lost", agent=1), host("b", "joining", agent=2)], 1.0, 10)
    assert lines == [
        Line("a       8 workers, round 1, 1 s", "good"),
        Line("longer  lost", "bad"),
        Line("b       waiting for the other hosts… 1 s", "busy"),
    ]


def test_workers_that_have_ended_and_restarts_are_counted() -> None:
    some = replace(host("a", "running"), pids=(1, 2), restarts=2, round=3)
    assert block([some], 0.0, 10)[0].text == "a  2 of 8 workers, round 3 (2 restarts), 0 s"
    assert block([replace(some, workers=1, pids=(1,), restarts=0)], 0.0, 10)[0].text == "a  1 worker, round 3, 0 s"


def test_many_hosts_fit_and_those_that_matter_are_shown() -> None:
    hosts = [host(f"node{number}", "running", agent=number) for number in range(50)]
    hosts[30] = host("node30", "lost", agent=30)
    hosts[40] = host("node40", "connecting", agent=40)
    lines = [line.text for line in block(hosts, 0.0, 5)]
    assert [line.split()[0] for line in lines] == ["node0", "node1", "node30", "node40", "and"]
    assert lines[-1] == "and 46 more hosts: 46 running"
    assert [line.text for line in block(hosts, 0.0, 1)] == ["50 hosts: 1 lost, 1 connecting, 48 running"]
    assert len(block(hosts, 0.0, 50)) == 50


def test_nothing_in_a_reason_reaches_the_terminal_as_a_command() -> None:
    assert printable("\x1b[31mred\x1b[0m \x1b]0;title\x07 end:\nmore") == "red ?]0;title? end"
    assert "\x1b" not in block([host("a\x1b[2J", "lost", reason="\x1b[2J")], 0.0, 1)[0].text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.9, "0 s"), (59.9, "59 s"), (61, "1 min 01 s"), (3599, "59 min 59 s"), (7260, "2 h 01 min")]
)
def test_a_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_plain_lines_tell_each_state_once_and_only_if_it_lasts() -> None:
    plain = PlainLines()
    both = [host("a", "connecting"), host("b", "connecting", agent=1)]
    assert plain.due(both, 0.9) == []
    assert plain.due(both, 1.1) == ["a, b: connecting"]
    assert plain.due(both, 60.0) == []
    both = [host("a", "running", since=60.0), host("b", "starting", agent=1, since=60.0)]
    assert plain.due(both, 60.5) == []
    assert plain.due(both, 61.5) == ["a: 8 workers, round 1", "b: starting 8 workers"]
    more = [host("c", "joining", agent=2, since=61.5), host("d", "joining", agent=3, since=62.5)]
    assert plain.due(more, 63.0) == ["c, d: waiting for the other hosts"], "a line is enough for both"
    fewer = [replace(both[0], pids=(1,)), host("b", "ended", agent=1, since=61.0)]
    assert plain.due(fewer, 70.0) == [], "that workers end one by one, and the end, is no news"


def test_many_names_are_counted() -> None:
    assert listed(["a", "b", "c", "d"]) == "a, b, c, d"
    assert listed([f"n{number}" for number in range(50)]) == "n0, n1, n2 and 47 more"
