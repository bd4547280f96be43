"""A run ends with its first failing worker's code, after exactly as many restarts as were allowed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.agents import Cluster


def test_all_well_is_zero(alone: Cluster) -> None:
    agent = alone.agent("--nproc_per_node", "2")
    alone.round_of(2)
    alone.tell("exit")
    assert agent.wait() == 0
    assert "succeeded" in agent.output()


@pytest.mark.parametrize("code", [1, 7, 255])
def test_the_exit_code_is_the_workers_own(alone: Cluster, code: int) -> None:
    agent = alone.agent("--nproc_per_node", "2")
    alone.round_of(2)
    alone.tell("exit-1", code)
    assert agent.wait() == code
    assert f"exit code {code}" in agent.output()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_worker_ended_by_a_signal_is_128_and_its_number(alone: Cluster, number: signal.Signals) -> None:
    program = alone.script(f"import os\nos.kill(os.getpid(), {int(number)})")
    agent = alone.agent(entry=[program])
    assert agent.wait() == 128 + number
    assert f"signal {int(number)} ({number.name})" in agent.output()


def test_the_budget_is_used_up_and_no_more(alone: Cluster) -> None:
    program = alone.script("import os, sys\nprint('attempt', os.environ['LATTICE_RESTART_COUNT'])\nsys.exit(9)")
    agent = alone.agent("--max_restarts", "2", entry=[program])
    assert agent.wait() == 9
    assert [agent.output().count(f"attempt {count}") for count in range(4)] == [1, 1, 1, 0]
    assert "failed in round 3 (2 restarts)" in agent.output()


def test_a_restart_that_works_hides_the_failure_before_it(alone: Cluster) -> None:
    program = alone.script("import os, sys\nsys.exit(0 if os.environ['LATTICE_RESTART_COUNT'] == '1' else 3)")
    agent = alone.agent("--max_restarts", "3", "--nproc_per_node", "2", entry=[program])
    assert agent.wait() == 0
    assert "succeeded in round 2 (1 restart)" in agent.output()


def test_when_one_worker_fails_the_others_are_stopped_and_not_blamed(alone: Cluster) -> None:
    agent = alone.agent("--nproc_per_node", "3")
    alone.round_of(3)
    alone.tell("exit-2", 5)
    assert agent.wait() == 5
    assert agent.output().count("told to stop") == 2
    assert "then rank" not in agent.output()


def test_a_program_that_is_not_there(alone: Cluster) -> None:
    agent = alone.agent("--no_python", entry=["no-such-program-at-all"])
    assert agent.wait() in (2, 127)
    assert "no-such-program-at-all" in agent.output()
    assert "Traceback" not in agent.output()


def test_a_script_that_is_not_there(alone: Cluster) -> None:
    agent = alone.agent(entry=["not_there.py"])
    assert agent.wait() != 0
    assert "not_there.py" in agent.output()
    assert "Traceback" not in agent.output()


def test_a_program_that_may_not_be_executed(alone: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexit 0\n")
    agent = alone.agent("--no_python", entry=[str(program)])
    assert agent.wait() in (2, 126)
    assert "chmod" in agent.output() or "not executable" in agent.output()


def test_an_interpreter_that_is_not_there_fails_the_worker_in_one_line(alone: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    agent = alone.agent("--no_python", "--nproc_per_node", "2", entry=[str(program)])
    assert agent.wait() == 127
    assert "/no/such/interpreter" in agent.output()
    assert "Traceback" not in agent.output()
