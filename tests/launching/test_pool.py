"""A pool of agents: kept from one run to the next, and whole at the beginning of each."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

import lattice
from tests.agents import ROOT
from tests.launching.test_launch import ALONE, rank
from tests.waiting import eventually

TWO = {**ALONE, "hostnames": ["localhost", "127.0.0.1"], "workers_per_host": 1}


def kill_agent(unlucky: int) -> int:
    if rank() == unlucky:
        os.kill(os.getppid(), signal.SIGKILL)
    return os.getppid()


def lose(pool: lattice.Launcher, agent: int) -> None:
    """Kill an agent while nothing runs, and wait until its launcher has heard of it."""
    assert pool._crew is not None
    os.kill(agent, signal.SIGKILL)
    eventually(lambda: pool._crew and pool._crew._news.qsize())


def test_a_lost_host_is_replaced_at_the_next_run() -> None:
    with lattice.Launcher(**TWO) as pool:
        first, second = pool.run(os.getppid)
        with pytest.raises(lattice.AgentFailedError, match=r"127\.0\.0\.1") as caught:
            pool.run(kill_agent, 1)
        assert caught.value.host == "127.0.0.1"
        again = pool.run(os.getppid)
        assert list(again.results) == ["localhost", "127.0.0.1"]
        assert again.rank(0) == first and again.rank(1) != second
        lose(pool, first)
        last = pool.run(os.getppid)
        assert list(last.results) == ["localhost", "127.0.0.1"]
        assert last.rank(1) == again.rank(1) and last.rank(0) != first


def test_a_host_that_cannot_be_replaced_is_named_unless_others_are_enough(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "src"} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with lattice.Launcher(python=str(python), **TWO) as pool:
        first, second = pool.run(os.getppid)
        python.unlink()
        lose(pool, second)
        for _ in range(2):
            with pytest.raises(lattice.AgentFailedError, match=r"no agent on 127\.0\.0\.1: .*cannot be executed"):
                pool.run(os.getppid)
        pool.min_hosts = 1
        assert pool.run(os.getppid).all() == [first]


def test_a_pool_forgets_what_the_caller_has_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(*names: str) -> list[str | None]:
        return [os.environ.get(name) for name in names]

    names = ("TORCH_OF_BEFORE", "TORCH_LATER", "OWN_OF_BEFORE", "FILED")
    monkeypatch.setenv("TORCH_OF_BEFORE", "1")
    monkeypatch.setenv("OWN_OF_BEFORE", "1")
    with lattice.Launcher(**{**TWO, "hostnames": ["localhost"]}) as pool:
        agent = pool.run(os.getppid).rank(0)
        monkeypatch.setenv("TORCH_LATER", "2")
        assert pool.run(seen, *names).rank(0) == ["1", "2", None, None]
        monkeypatch.delenv("TORCH_LATER")
        monkeypatch.setenv("TORCH_OF_BEFORE", "3")
        assert pool.run(seen, *names).rank(0) == ["3", None, None, None]
        pool.extra_env_vars = ("OWN_*",)
        assert pool.run(seen, *names).rank(0) == ["3", None, "1", None]
        pool.env_file = tmp_path / "variables.sh"
        pool.env_file.write_text("FILED=4\nunset OWN_OF_BEFORE\n")
        assert pool.run(seen, *names).rank(0) == ["3", None, None, "4"]
        pool.env_file = None
        assert pool.run(seen, *names).rank(0) == ["3", None, "1", None]
        monkeypatch.delenv("TORCH_OF_BEFORE")
        monkeypatch.delenv("OWN_OF_BEFORE")
        assert pool.run(seen, *names).rank(0) == [None, None, None, None]
        assert pool.run(os.getppid).rank(0) == agent
