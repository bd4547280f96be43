"""What each recovery cost, and where the time went: on the console and in the journal."""

from __future__ import annotations

import re

import pytest

from tests.agents import Cluster

TRAINS = """
import os, sys, time
import lattice
step = 0 if os.environ["LATTICE_RESTART_COUNT"] == "0" else 10
while step < 30:
    time.sleep(0.01)
    lattice.heartbeat(step)
    if step == 20 and os.environ["LATTICE_RESTART_COUNT"] == "0":
        sys.exit(3)
    step += 1
"""


def test_each_restart_ends_with_its_bill_and_the_run_with_the_sum(alone: Cluster) -> None:
    agent = alone.agent("--max_restarts", "1", "--preload", "decimal", entry=[alone.script(TRAINS)])
    assert agent.wait() == 0, agent.output()
    (line,) = re.findall(r"recovered in (\d+) ms: detect (\d+), stop (\d+), rendezvous (\d+), (.*)", agent.output())
    (bill,) = agent.events("recovered")
    stages = ("detect", "stop", "rendezvous", "fork" if "fork" in bill else "start", "first_step")
    assert bill["took"] == pytest.approx(sum(bill[stage] for stage in stages), abs=0.01)
    assert int(line[0]) == pytest.approx(1000 * bill["took"], abs=1.0)
    assert bill["kind"] == "worker" and bill["round"] == 2
    assert "goodput" in agent.output() and "worker failures (1, 11 steps trained again)" in agent.output()
    (total,) = agent.events("goodput")
    lost = sum(loss["seconds"] for loss in total["lost"].values())
    assert total["seconds"] == pytest.approx(total["trained"] + total["starting"] + lost, abs=0.01)
    assert total["lost"]["worker"]["seconds"] > bill["took"] + 0.1, "what was trained again is lost too"
    assert 0 < total["goodput"] < 1


def test_torch_workers_tell_when_their_process_group_is_up(alone: Cluster) -> None:
    script = alone.script(
        "import os, sys, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "dist.barrier()\n"
        "dist.destroy_process_group()\n"
        "sys.exit(5 if os.environ['LATTICE_RESTART_COUNT'] == '0' and os.environ['RANK'] == '1' else 0)\n"
    )
    options = ("--framework", "pytorch", "--nproc_per_node", "2", "--max_restarts", "1")
    agent = alone.agent(*options, entry=[script], environ={"LATTICE_PRELOAD": ""})
    assert agent.wait(120) == 0, agent.output()
    (bill,) = agent.events("recovered")
    assert {"detect", "stop", "rendezvous", "fork", "group"} <= bill.keys()
    assert re.search(r"recovered in \d+ ms: .*fork \d+, group \d+", agent.output())
    assert agent.events("up")[0]["round"] == 1


def test_a_short_run_without_trouble_says_nothing_of_it(alone: Cluster) -> None:
    agent = alone.agent(entry=[alone.script("print('hello')\n")])
    assert agent.wait() == 0
    assert "goodput" not in agent.output() and "recovered" not in agent.output()
    assert agent.events("goodput")[0]["lost"] == {}


def test_the_slowest_rank_is_named_at_the_end(alone: Cluster) -> None:
    script = alone.script(
        "import os, time, lattice\n"
        "slow = os.environ['LATTICE_RANK'] == '1'\n"
        "for step in range(5):\n"
        "    lattice.heartbeat(step)\n"
        "    time.sleep(0.2 if slow else 0.01)\n"
    )
    agent = alone.agent("--nproc_per_node", "3", entry=[script])
    assert agent.wait() == 0
    assert "slowest: rank 1 on" in agent.output()
