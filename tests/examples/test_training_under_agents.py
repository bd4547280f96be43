"""The training example as a user runs it: nodes are lost and come, and the loss falls as if nothing had been."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.agents import ROOT, AgentProcess, cluster
from tests.etcd_server import EtcdServer
from tests.faults.conftest import address, options
from tests.waiting import eventually

TRAIN = str(ROOT / "examples" / "train_elastic.py")
LINE = re.compile(r"step (\d+) loss (\S+) world (\d+) restart (\d+)")


def lines(*agents: AgentProcess) -> list[tuple[int, float, int, int]]:
    """Give step, loss, world and restart of every line that rank 0 printed, on whichever node that was."""
    found = [LINE.findall(agent.output()) for agent in agents]
    return sorted((int(a), float(b), int(c), int(d)) for part in found for a, b, c, d in part)


@pytest.mark.long
def test_the_loss_falls_through_losing_and_gaining_nodes(etcd: EtcdServer, tmp_path: Path) -> None:
    given = options("1:2", address(etcd), "--framework", "pytorch", "--max_restarts", "1", last_call=30)
    steps = 600
    entry = [TRAIN, "--checkpoint", str(tmp_path / "checkpoint"), "--steps", str(steps), "--pause", "0.02"]
    warm = {"LATTICE_PRELOAD": ""}
    alone = [TRAIN, "--checkpoint", str(tmp_path / "alone"), "--steps", str(steps)]
    with cluster(tmp_path, *given) as run:
        first, second = (run.agent(entry=entry, environ=warm) for _ in range(2))
        eventually(lambda: any(world == 2 for _, _, world, _ in lines(first, second)), within=120)
        second.kill()
        eventually(lambda: lines(first) and lines(first)[-1][2] == 1, within=120)
        third = run.agent(entry=entry, environ=warm)
        eventually(lambda: first.worlds()[-2:] == [1, 2], within=120)
        assert first.wait(240) == 0, first.output()
        assert third.wait(60) == 0, third.output()
        told = lines(first, second, third)
    (tmp_path / "reference").mkdir()
    with cluster(tmp_path / "reference", "--framework", "pytorch") as run:
        undisturbed = run.agent(entry=alone, environ=warm)
        assert undisturbed.wait(120) == 0, undisturbed.output()
        expected = {step: loss for step, loss, _, _ in lines(undisturbed)}
    assert first.worlds() == [2, 1, 2]
    assert {restart for _, _, _, restart in told} == {0}, "losing and gaining nodes uses no restart"
    assert told[-1][0] == steps
    for step, loss, _, _ in told:
        assert abs(loss - expected[step]) < 0.02 + 0.02 * expected[step], f"step {step} was not trained as it should be"
    assert told[-1][1] < 0.2 * told[0][1]
