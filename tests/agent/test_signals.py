"""A signal to the agent is a goodbye: workers are asked, given their grace, and then killed; twice means at once."""

from __future__ import annotations

import signal
import time

import pytest

from tests.agents import SCRIPTED, Cluster, alive
from tests.waiting import eventually


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_is_a_goodbye(alone: Cluster, number: signal.Signals) -> None:
    agent = alone.agent("--nproc_per_node", "2", prefix=["env", "--default-signal"])
    alone.round_of(2)
    agent.signal(number)
    assert agent.wait() == 128 + number
    assert agent.output().count("told to stop") == 2
    assert "Traceback" not in agent.output()


def test_a_signal_that_was_ignored_before_stays_ignored(alone: Cluster) -> None:
    """As with nohup: the user has gone home and the training shall go on."""
    agent = alone.agent(prefix=["env", "--ignore-signal=HUP"])
    alone.round_of(1)
    agent.signal(signal.SIGHUP)
    alone.tell("exit", 3)
    assert agent.wait() == 3


def test_the_grace_is_given_and_then_ends(alone: Cluster) -> None:
    agent = alone.agent("--shutdown_timeout", "1.5", entry=[SCRIPTED, str(alone.said), "stubborn"])
    pids = alone.pids(alone.round_of(1))
    began = time.monotonic()
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 128 + signal.SIGTERM
    assert time.monotonic() - began >= 1.5, "killed before its grace was over"
    assert not alive(pids[0])


def test_the_grace_is_given_when_a_peer_fails_too(alone: Cluster) -> None:
    program = alone.script("""
import os, signal, sys, time
from pathlib import Path
if os.environ["LATTICE_RANK"] == "0":
    while not Path(sys.argv[1]).exists():
        time.sleep(0.01)
    sys.exit(3)
def save(*_):
    time.sleep(1)
    print("saved in time", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
Path(sys.argv[1]).write_text("")
time.sleep(600)
""")
    agent = alone.agent(
        "--nproc_per_node", "2", "--shutdown_timeout", "60", entry=[program, str(alone.folder / "ready")]
    )
    assert agent.wait() == 3
    assert "saved in time" in alone.log(1, 1)


def test_a_second_interrupt_kills_at_once(alone: Cluster) -> None:
    agent = alone.agent("--shutdown_timeout", "600", entry=[SCRIPTED, str(alone.said), "stubborn"])
    pids = alone.pids(alone.round_of(1))
    agent.signal(signal.SIGINT)
    eventually(lambda: agent.events("goodbye asked"))
    assert alive(pids[0])
    agent.signal(signal.SIGINT)
    assert agent.wait(20) == 130
    assert not alive(pids[0])


def test_a_stubborn_worker_does_not_keep_a_restart_from_happening(alone: Cluster) -> None:
    agent = alone.agent(
        "--nproc_per_node",
        "2",
        "--max_restarts",
        "1",
        "--shutdown_timeout",
        "0.5",
        entry=[SCRIPTED, str(alone.said), "stubborn"],
    )
    before = alone.pids(alone.round_of(2))
    alone.tell("exit-1-0", 1)
    alone.round_of(2, after=1)
    assert not any(alive(pid) for pid in before)
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 143


def test_a_goodbye_before_any_worker_runs(alone: Cluster) -> None:
    agent = alone.agent("--nnodes", "2", "--rdzv_id", "early", "--rdzv_endpoint", "127.0.0.1:1")
    eventually(lambda: agent.events("agent started"))
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 143


def test_only_the_signals_that_were_asked_for_are_a_goodbye(alone: Cluster) -> None:
    agent = alone.agent("--signals_to_handle", "SIGUSR1")
    alone.round_of(1)
    agent.signal(signal.SIGUSR1)
    assert agent.wait() == 128 + signal.SIGUSR1
    assert "told to stop" in agent.output()
