"""A gloo job loses a random rank again and again: every time the group forms anew, and nothing hangs."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import ROOT, Cluster, alive, cluster
from tests.etcd_server import EtcdServer
from tests.faults.conftest import address, options
from tests.soak.conftest import Figures, Note
from tests.soak.footprint import Footprint
from tests.waiting import eventually

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]

GLOO = str(ROOT / "tests" / "workers" / "gloo.py")
WITHIN = 60.0


@pytest.fixture(params=["one node, fresh", "one node, warm", "two nodes, warm"])
def job(request: pytest.FixtureRequest, tmp_path: Path, rounds: int, etcd: EtcdServer) -> Iterator[Cluster]:
    nodes, _, start = request.param.partition(", ")
    preload = {"LATTICE_PRELOAD": "" if start == "warm" else "none"}
    common = ["--framework", "pytorch", "--max_restarts", str(rounds), "--redirects", "3"]
    if nodes == "one node":
        with cluster(tmp_path, *common, "--nproc_per_node", "2") as made:
            made.agent(entry=[GLOO, str(made.said)], environ=preload)
            yield made
        return
    with cluster(tmp_path, *options("2", address(etcd), *common)) as made:
        for _ in range(2):
            made.agent(entry=[GLOO, str(made.said)], environ=preload)
        yield made


def test_restarts_in_a_row(
    job: Cluster, rounds: int, seed: int, figures: Figures, note: Note, request: pytest.FixtureRequest
) -> None:
    chance = random.Random(seed)
    took = []
    number = job.round_of(2)
    name = request.node.callspec.params["job"]
    footprints = [Footprint(job, agent, warm=name.endswith("warm")) for agent in job.agents]
    for count in range(1, rounds + 1):
        before = job.pids(number)
        killed = time.monotonic()
        os.kill(before[chance.randrange(2)], signal.SIGKILL)
        number = job.round_of(2, after=number)
        took.append(time.monotonic() - killed)
        assert {worker["sum"] for worker in job.workers(number)} == {3}, "the group gave a wrong sum"
        assert {worker["LATTICE_RESTART_COUNT"] for worker in job.workers(number)} == {str(count)}
        eventually(lambda number=number: not job.left_from_before(number))  # type: ignore[misc]
        eventually(lambda before=before: not any(map(alive, before)))  # type: ignore[misc]
        for footprint in footprints:
            footprint.look(job.pids(number))
    pids = job.pids(number)
    job.tell("exit")
    assert [agent.wait(WITHIN) for agent in job.agents] == [0] * len(job.agents)
    assert not any(alive(pid) for pid in pids)
    figures(f"worker killed to process group formed, {name}", took)
    for footprint in footprints:
        note(f"memory over {rounds} rounds, {name}: {footprint.grown()}")
