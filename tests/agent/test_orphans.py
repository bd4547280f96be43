"""Nothing that a worker started outlives it, and no worker outlives its agent, however that one ends."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.agents import SCRIPTED, Cluster, alive
from tests.waiting import eventually, pass_time

FAMILY = """
import os, subprocess, sys, time
from pathlib import Path
children = [
    subprocess.Popen(["sleep", "600"]),
    subprocess.Popen(["sleep", "600"], start_new_session=True),
    subprocess.Popen(["sh", "-c", "trap '' TERM INT HUP; sleep 600 & setsid sleep 600"]),
]
here = Path(sys.argv[1])
(here / ".pids").write_text(" ".join(str(child.pid) for child in children))
(here / ".pids").rename(here / "pids")
time.sleep(float(sys.argv[2]))
sys.exit(int(sys.argv[3]))
"""


def family(alone: Cluster, seconds: float, code: int) -> list[str]:
    return [alone.script(FAMILY), str(alone.folder), str(seconds), str(code)]


def pids_of(folder: Path) -> list[int]:
    eventually((folder / "pids").exists)
    return [int(pid) for pid in (folder / "pids").read_text().split()]


def test_nobody_survives_an_agent_that_is_killed(alone: Cluster) -> None:
    agent = alone.agent("--nproc_per_node", "1", entry=family(alone, 600, 0))
    pids = pids_of(alone.folder)
    assert all(alive(pid) for pid in pids)
    agent.kill()
    eventually(lambda: not alone.descendants())
    assert not any(alive(pid) for pid in pids)


def test_nobody_survives_a_worker_that_ends_well(alone: Cluster) -> None:
    agent = alone.agent(entry=family(alone, 0.1, 0))
    assert agent.wait() == 0
    assert not alone.descendants()


def test_nobody_survives_a_worker_that_fails(alone: Cluster) -> None:
    agent = alone.agent("--max_restarts", "1", entry=family(alone, 0.1, 3))
    assert agent.wait() == 3
    assert not alone.descendants()


def test_nobody_survives_a_goodbye(alone: Cluster) -> None:
    agent = alone.agent("--shutdown_timeout", "1", entry=family(alone, 600, 0))
    pids_of(alone.folder)
    agent.signal(signal.SIGTERM)
    assert agent.wait() == 143
    assert not alone.descendants()


def test_a_guard_that_is_killed_is_replaced_and_workers_go_on(alone: Cluster) -> None:
    agent = alone.agent("--nproc_per_node", "2", "--max_restarts", "1")
    before = alone.pids(alone.round_of(2))
    guard = agent.guard()
    assert guard
    os.kill(guard, signal.SIGKILL)
    eventually(lambda: agent.events("guard replaced"))
    assert agent.guard() not in (0, guard)
    assert all(alive(pid) for pid in before)
    alone.tell("exit-1-1", 1)
    alone.round_of(2, after=1)
    agent.kill()
    eventually(lambda: not alone.descendants())


def test_a_guard_and_its_agent_killed_together_leave_no_worker(alone: Cluster) -> None:
    agent = alone.agent("--nproc_per_node", "2", entry=[SCRIPTED, str(alone.said), "stubborn"])
    pids = alone.pids(alone.round_of(2))
    os.kill(agent.guard(), signal.SIGKILL)
    agent.kill()
    eventually(lambda: not any(alive(pid) for pid in pids))


def test_an_agent_that_pauses_longer_than_its_lease_keeps_its_workers(alone: Cluster) -> None:
    agent = alone.agent("--nproc_per_node", "2", "--rdzv_conf", "lease_ttl=1")
    number = alone.round_of(2)
    pids = alone.pids(number)
    agent.signal(signal.SIGSTOP)
    pass_time(2.5)  # longer than the lease
    agent.signal(signal.SIGCONT)
    alone.tell("exit")
    assert agent.wait() == 0
    assert agent.worlds() == [2]
    assert alone.pids(number) == pids
