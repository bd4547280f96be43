"""Before a planned stop workers that asked for it are told, and may save; nobody waits for those who did not."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.agents import ROOT, Cluster
from tests.faults.conftest import Form
from tests.waiting import eventually

COURTEOUS = str(ROOT / "tests" / "workers" / "courteous.py")
LONG = "--notice_grace", "300"
"""longer than the test would wait: the notice must end by itself"""


def entry(run: Cluster, *how: str) -> list[str]:
    return [COURTEOUS, str(run.said), *how]


def said(run: Cluster, what: str, number: int, rank: int) -> Path:
    path = run.said / f"{what}-{number}-{rank}"
    eventually(path.exists, within=60)
    return path


def number(path: Path) -> float:
    """Tell when something was said, to compare with other sayings of the same host."""
    return path.stat().st_mtime_ns


def finish(run: Cluster) -> None:
    (run.said / "exit").touch()
    for agent in run.agents:
        if agent.process.poll() is None:
            assert agent.wait() == 0, agent.output()


@pytest.mark.parametrize("how", [("calls",), ("calls", "SIGUSR2"), ("notes",), ("polls",)])
def test_workers_save_before_newcomers_are_let_in(form: Form, how: tuple[str, ...]) -> None:
    run = form("1:2", *LONG)
    run.agent(entry=entry(run, *how))
    said(run, "began", 1, 0)
    run.agent(entry=entry(run, *how))
    saved = said(run, "saved", 1, 0)
    assert "joined, True" in saved.read_text(), "the reason, and time left"
    assert number(said(run, "terminated", 1, 0)) >= number(saved)
    for rank in (0, 1):
        said(run, "began", 2, rank)
    (notice,) = run.agents[0].events("notice given")
    assert "joined" in notice["reason"]
    finish(run)


def test_all_workers_save_together_when_a_node_leaves(form: Form) -> None:
    run = form("1:2", *LONG)
    agents = [run.agent(entry=entry(run, "calls")) for _ in range(2)]
    for rank in (0, 1):
        said(run, "began", 1, rank)
    agents[1].signal(signal.SIGTERM)
    assert agents[1].wait() == 143
    for rank in (0, 1):
        assert number(said(run, "saved", 1, rank)) <= number(said(run, "terminated", 1, rank))
    said(run, "began", 2, 0)
    finish(run)


def test_a_file_and_a_signal_of_choice_serve_workers_of_any_language(form: Form) -> None:
    run = form("1", *LONG, "--notice_signal", "SIGUSR2")
    agent = run.agent(entry=entry(run, "file"))
    said(run, "began", 1, 0)
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 143
    content = json.loads(said(run, "saved", 1, 0).read_text().partition(" ")[2])
    assert 0 < content["seconds"] <= 300 and content["reason"]
    assert (run.said / "signalled-1-0").exists()


def test_the_time_of_a_notice_is_limited(form: Form) -> None:
    run = form("1", "--notice_grace", "0.5")
    agent = run.agent(entry=entry(run, "ignores"))
    said(run, "began", 1, 0)
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 143
    said(run, "terminated", 1, 0)


def test_a_second_signal_ends_a_notice_too(form: Form) -> None:
    run = form("1", *LONG)
    agent = run.agent(entry=entry(run, "ignores"))
    said(run, "began", 1, 0)
    agent.signal(signal.SIGTERM)
    eventually(lambda: agent.events("notice given"))
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 143
    assert not (run.said / "terminated-1-0").exists(), "it was killed"


def test_a_failure_elsewhere_ends_a_notice(form: Form) -> None:
    """Whoever saves together with a node that is lost meanwhile would wait for it for ever."""
    run = form("1:3", *LONG)
    agents = [run.agent(entry=entry(run, "ignores")) for _ in range(2)]
    for rank in (0, 1):
        said(run, "began", 1, rank)
    newcomer = run.agent(entry=entry(run, "ignores"))
    for agent in agents:
        eventually(lambda agent=agent: agent.events("notice given"))  # type: ignore[misc]
    agents[1].kill()
    said(run, "began", 2, 0)
    assert newcomer.process.poll() is None
    finish(run)


def test_nobody_is_waited_for_who_did_not_ask(form: Form) -> None:
    run = form("1:2", *LONG)
    run.agent()
    first = run.round_of(1)
    run.agent()
    run.round_of(2, after=first)
    assert not run.agents[0].events("notice given")
    run.tell("exit")
    for agent in run.agents:
        assert agent.wait() == 0
