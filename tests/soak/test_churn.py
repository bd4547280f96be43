"""Nodes join, leave, die and sleep at random: after every change all workers agree, and nothing is left behind."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import AgentProcess, Cluster, alive, cluster
from tests.etcd_server import EtcdServer, free_ports
from tests.faults.conftest import LEASE, address, options
from tests.soak.conftest import Figures
from tests.waiting import eventually, pass_time

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]

MAXIMUM = 4
"""nodes in a round; a fifth is a spare"""
WORKERS = 2


COMMON = ("--framework", "pytorch", "--max_restarts", "100000", "--nproc_per_node", str(WORKERS))


@pytest.fixture
def run(tmp_path: Path, own_etcd: EtcdServer) -> Iterator[Cluster]:
    with cluster(tmp_path, *options(f"1:{MAXIMUM}", address(own_etcd), *COMMON)) as made:
        yield made


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Cluster]:
    (port,) = free_ports(1)
    given = options(f"1:{MAXIMUM}", f"127.0.0.1:{port}", *COMMON, "--rdzv_backend", "embedded")
    with cluster(tmp_path, *given) as made:
        yield made


class Churn:
    """One run and what chance does to it."""

    def __init__(self, run: Cluster, etcd: EtcdServer | None, seed: int) -> None:
        """Begin; without etcd the first agent serves the store, and nothing happens to it."""
        self.run = run
        self.etcd = etcd
        self.chance = random.Random(seed)
        self.agents: list[AgentProcess] = []
        self.number = 0
        self.history: list[str] = []
        self.sizes: dict[AgentProcess, tuple[float, int]] = {}

    def join(self) -> bool:
        before = len(self.agents)
        agent = self.run.agent()
        eventually(lambda: agent.events("store connected"))
        self.agents.append(agent)
        return before < MAXIMUM

    def leave(self) -> bool:
        agent = self._pick()
        inside = self._runs(agent)
        agent.signal(signal.SIGTERM)
        assert agent.wait() == 143
        return inside

    def die(self) -> bool:
        agent = self._pick()
        inside = self._runs(agent)
        agent.kill()
        return inside

    def sleep(self) -> bool:
        """Pause an agent past its lease; it comes back by itself as a newcomer."""
        agent = self._pick()
        inside = self._runs(agent)
        agent.signal(signal.SIGSTOP)
        if inside:
            self.expect(changed=True, clean=False)
        agent.signal(signal.SIGCONT)
        before = len(self.agents)
        self.agents.append(agent)
        return before < MAXIMUM

    def outage(self) -> bool:
        """Take etcd away for longer than a lease: nothing may happen."""
        assert self.etcd is not None
        pids = self.run.pids(self.number)
        self.etcd.kill()
        pass_time(1.5 * LEASE)
        self.etcd.restart()
        pass_time(1.5 * LEASE)
        assert all(alive(pid) for pid in pids), f"an outage restarted workers\n{self.run.outputs()}"
        return False

    def fail(self) -> None:
        """One worker fails: all restart at once, with the same ranks."""
        world = self._world()
        self.run.tell(f"exit-{self.number}-{self.chance.randrange(world)}", 1)
        before = self.number
        self.expect(changed=True)
        assert self.number == before + 1

    def expect(self, changed: bool, clean: bool = True) -> None:
        """Wait until everyone who should be in a round is, then look at it all; for old workers if it is clean."""
        world = self._world()
        self.number = self.run.round_of(world, after=self.number if changed else self.number - 1)
        self.run.agree(self.number)
        if clean:
            eventually(lambda: not self.run.left_from_before(self.number))
        for agent in self.agents:
            if len(agent.events("round started")) >= 3:
                memory, descriptors = agent.memory(), agent.descriptors()
                first = self.sizes.setdefault(agent, (memory, descriptors))
                assert memory < first[0] + 10, f"{agent.name} grew from {first[0]:.0f} to {memory:.0f} MB"
                assert descriptors < first[1] + 10, f"{agent.name}: from {first[1]} to {descriptors} descriptors"

    def step(self) -> None:
        """Let chance do something that is possible now."""
        choices = [self.outage] if self.etcd else []
        choices += [self.join] * 4 if len(self.agents) < MAXIMUM + 1 else []
        choices += [self.leave, self.leave, self.die, self.die, self.sleep] if len(self.agents) > 2 else []
        choice = self.chance.choice(choices)
        self.history.append(choice.__name__)
        self.expect(changed=choice())

    def _world(self) -> int:
        return WORKERS * min(len(self.agents), MAXIMUM)

    def _pick(self) -> AgentProcess:
        return self.agents.pop(self.chance.randrange(0 if self.etcd else 1, len(self.agents)))

    def _runs(self, agent: AgentProcess) -> bool:
        started = agent.events("round started")
        return bool(started) and started[-1]["round"] == self.number


def test_all_workers_agree_whatever_happens(
    run: Cluster, own_etcd: EtcdServer, rounds: int, seed: int, figures: Figures
) -> None:
    changes, failures = survive(Churn(run, own_etcd, seed), rounds, seed)
    figures("a node joined, left, died or slept", changes)
    figures("a worker failed on one of several nodes", failures)


def test_all_workers_agree_on_an_embedded_store(embedded: Cluster, rounds: int, seed: int, figures: Figures) -> None:
    changes, failures = survive(Churn(embedded, None, seed), rounds, seed)
    figures("a node joined, left, died or slept, embedded store", changes)
    figures("a worker failed on one of several nodes, embedded store", failures)


def survive(churn: Churn, rounds: int, seed: int) -> tuple[list[float], list[float]]:
    """Let things happen, and give the seconds that each change of members and each failure took."""
    for _ in range(3):
        churn.join()
    churn.expect(changed=True)
    changes, failures = [], []
    for _ in range(rounds):
        try:
            began = time.monotonic()
            churn.step()
            changes.append(time.monotonic() - began)
            began = time.monotonic()
            churn.fail()
            failures.append(time.monotonic() - began)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, after {churn.history}: {error}") from error
    for number in churn.run.rounds():
        churn.run.agree(number)
    churn.run.tell("exit")
    assert [agent.wait() for agent in churn.agents] == [0] * len(churn.agents)
    return changes, failures


def test_etcd_is_away_for_a_minute(run: Cluster, own_etcd: EtcdServer) -> None:
    agents = [run.agent() for _ in range(2)]
    number = run.round_of(2 * WORKERS)
    pids, worlds = run.pids(number), [agent.worlds() for agent in agents]
    own_etcd.kill()
    pass_time(60.0)
    assert all(alive(pid) for pid in pids)
    own_etcd.restart()
    for agent in agents:
        eventually(lambda agent=agent: len(agent.events("store connected")) == 2)  # type: ignore[misc]
    pass_time(3 * LEASE)
    assert all(alive(pid) for pid in pids)
    run.tell("exit")
    assert [agent.wait() for agent in agents] == [0, 0]
    assert [agent.worlds() for agent in agents] == worlds
