"""Workers that live and do not get on are found, shown, and restarted; on every node."""

from __future__ import annotations

import os
import signal

from tests.agents import ROOT, Cluster
from tests.faults.conftest import Form
from tests.waiting import eventually, pass_time

COURTEOUS = str(ROOT / "tests" / "workers" / "courteous.py")
HANG = "--hang_timeout", "4"  # a busy machine may keep a worker that is well from its turn for a second


def start(run: Cluster, *options: str) -> None:
    run.agent(*options, entry=[COURTEOUS, str(run.said), "polls"])


def began(run: Cluster, number: int, *ranks: int) -> None:
    for rank in ranks:
        eventually((run.said / f"began-{number}-{rank}").exists, within=60)


def test_a_hang_is_restarted_with_the_stacks_of_all_ranks_in_the_logs(form: Form) -> None:
    run = form("2", *HANG, "--max_restarts", "1", "--nproc_per_node", "2")
    start(run)
    start(run)
    began(run, 1, 0, 1, 2, 3)
    (run.said / "hang-1-2").touch()
    began(run, 2, 0, 1, 2, 3)
    (run.said / "exit").touch()
    for agent in run.agents:
        assert agent.wait() == 0, agent.output()
    for rank in range(4):
        stacks = run.log(1, rank, "stderr")
        assert "most recent call first" in stacks and "courteous.py" in stacks, f"rank {rank}: {stacks}"
    outputs = run.outputs()
    assert "rank 2 on" in outputs and "hangs" in outputs and "restart 1 of 1" in outputs
    assert "last heartbeat" in outputs and "step " in outputs
    (bill,) = run.agents[0].events("recovered")
    assert bill["kind"] == "hang"


def test_a_stopped_worker_hangs_and_is_said_to_be_stopped(form: Form) -> None:
    run = form("1", *HANG, "--nproc_per_node", "2", "--shutdown_timeout", "1")
    start(run)
    began(run, 1, 0, 1)
    pids = run.agents[0].started()
    os.kill(pids[1], signal.SIGSTOP)
    assert run.agents[0].wait() == 1
    output = run.agents[0].output()
    assert "rank 1 on" in output and "it hangs" in output and "stopped" in output
    assert "--hang_timeout" in output, "what the time limit is set by"


def test_workers_that_give_no_heartbeats_never_hang(form: Form) -> None:
    run = form("1", "--hang_timeout", "0.2")
    agent = run.agent()
    run.round_of(1)
    pass_time(1.0)
    assert agent.worlds() == [1]
    run.tell("exit")
    assert agent.wait() == 0


def test_a_worker_that_gave_heartbeats_before_must_come_to_its_first_one(form: Form) -> None:
    run = form("1", *HANG, "--max_restarts", "2")
    script = run.script(
        "import os, sys, time, lattice\n"
        "if os.environ['LATTICE_ROUND'] == '1':\n"
        "    lattice.heartbeat()\n"
        "    sys.exit(3)\n"
        "if os.environ['LATTICE_ROUND'] == '2':\n"
        "    time.sleep(600)\n"
    )
    agent = run.agent(entry=[script])
    assert agent.wait() == 0, agent.output()
    assert agent.worlds() == [1, 1, 1]
    assert "no heartbeat yet" in agent.output()
