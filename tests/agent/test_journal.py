"""The journal tells every state change with its reason and duration; the agent itself stays small and quick."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.agents import Cluster, clean_environment
from tests.waiting import eventually, patience


def test_the_journal_of_a_restart(alone: Cluster) -> None:
    agent = alone.agent("--nproc_per_node", "2", "--max_restarts", "1", "--rdzv_id", "told")
    alone.round_of(2)
    alone.tell("exit-1-1", 3)
    alone.round_of(2, after=1)
    alone.tell("exit")
    assert agent.wait() == 0
    events = agent.events()
    names = [line["event"] for line in events]
    order = ["agent started", "round started", "workers started", "worker exited", "workers stopped"]
    order += ["round started", "workers started", "run ended"]
    at = -1
    for name in order:
        at = names.index(name, at + 1)
    assert all({"time", "at", "took", "run", "node"} <= line.keys() for line in events)
    assert {line["run"] for line in events} == {"told"}
    first, second = agent.events("round started")
    assert (first["reason"], first["restarts"], second["restarts"]) == ("first round", 0, 1)
    assert "rank 1" in second["reason"] and "code 3" in second["reason"]
    assert any(line["code"] == 3 and line["rank"] == 1 for line in agent.events("worker exited"))


def test_the_journal_on_standard_output(alone: Cluster) -> None:
    argv = [sys.executable, "-m", "lattice.torch.run", "--events", "-", "--redirects", "3"]
    argv += ["--log_dir", str(alone.folder / "logs"), alone.script("print('worker line')")]
    done = subprocess.run(
        argv, env=clean_environment(), capture_output=True, text=True, timeout=patience(60), check=True
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["event"] == "agent started"
    assert lines[-1]["event"] == "run ended" and lines[-1]["status"] == 0


def test_a_journal_that_cannot_be_written_is_an_error(alone: Cluster) -> None:
    agent = alone.agent("--events", "/no/such/folder/events")
    assert agent.wait() == 2
    assert "LATTICE_EVENTS" in agent.output()


def test_an_agent_is_small(alone: Cluster) -> None:
    agent = alone.agent("--nproc_per_node", "4", "--framework", "pytorch")
    alone.round_of(4)
    assert agent.memory() < 60
    alone.tell("exit")
    assert agent.wait() == 0


def test_restarts_leave_no_descriptors(alone: Cluster) -> None:
    agent = alone.agent("--nproc_per_node", "2", "--max_restarts", "20")
    limit = 1000

    def settle(limit: int) -> None:
        """Wait until there are no more than that: one may be open at this very moment."""
        eventually(lambda: agent.descriptors() <= limit)

    for number in range(1, 8):
        assert alone.round_of(2, after=number - 1) == number
        eventually(lambda number=number: len(agent.events("workers started")) == number)  # type: ignore[misc]
        settle(limit)
        if number == 2:
            limit = agent.descriptors()
        alone.tell(f"exit-{number}-1", 1)
    alone.tell("exit")
    assert agent.wait() == 0
