"""Simulated workers: they meet their peers, finish, fail, hang, or fall over when a peer does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from lattice.core.events import Event, WorkersDone, WorkersFailed, WorkersStopped
from lattice.core.records import FailureRecord
from lattice.core.supervision import NOTICE
from lattice.core.topology import Assignment

if TYPE_CHECKING:
    from tests.simulation.agent import SimulatedAgent
    from tests.simulation.cluster import Cluster


class Group:
    """The workers of one round on all nodes: what becomes of them is drawn once, for all of them together."""

    def __init__(self, cluster: Cluster, uuid: str, number: int, nodes: int) -> None:
        self.cluster, self.uuid, self.number, self.nodes = cluster, uuid, number, nodes
        self.members: dict[int, tuple[SimulatedWorkers, int]] = {}
        world, plan = cluster.world, cluster.plan
        self.fate = "done" if cluster.settling else world.random.choices(*plan.fates)[0]
        if cluster.settling and plan.forever:
            self.fate = "hang"
        self.lasts = world.between(0.5, 4.0) if cluster.settling else world.between(*plan.lasting)
        self.victim = world.random.randrange(nodes)
        self.broken = False

    def join(self, workers: SimulatedWorkers, rank: int) -> None:
        """Count in the workers of one node; what the round will come to begins when all are there."""
        self.members[rank] = workers, workers.generation
        world = self.cluster.world
        if self.fate == "worker" and rank == self.victim:
            workers.later(self.lasts * world.random.random(), lambda: workers.fail("worker"))
        elif self.fate == "port" and rank == 0:
            workers.later(world.between(0.0, 0.5), lambda: workers.fail("port"))
        elif self.fate == "alone":
            workers.later(self.lasts * world.random.random(), workers.done)
        if len(self.members) == self.nodes and self.fate == "done" and not self.broken:
            self.finish()

    def finish(self) -> None:
        """All workers come to their end, nearly at once."""
        for workers, generation in self.members.values():
            if workers.generation == generation and workers.phase == "running":
                delay = self.lasts + self.cluster.world.between(0.0, 0.5)
                workers.later(delay, partial(self._done, workers))

    def _done(self, workers: SimulatedWorkers) -> None:
        if not self.broken:
            workers.done()

    def breaks(self, by: SimulatedWorkers) -> None:
        """Some workers are gone: the others notice, sooner or later, or hang."""
        if not self.broken:
            self.broken = self.fate != "alone"
            by.agent.world.note("workers", f"round {self.number} broken by {by.agent.name}")
        if self.fate == "alone":
            return
        world = self.cluster.world
        for workers, generation in self.members.values():
            running = workers.generation == generation and workers.phase == "running"
            if workers is not by and running and world.chance(0.7):
                workers.later(world.between(0.01, 1.5), partial(workers.fail, "connection"))


class SimulatedWorkers:
    """The workers of one agent, and the part of the shell that tells of them."""

    def __init__(self, agent: SimulatedAgent) -> None:
        self.agent = agent
        self.phase = "idle"
        self.generation = 0
        self.group: Group | None = None
        self.assignment: Assignment | None = None
        self._free_at = 0.0

    def start(self, assignment: Assignment) -> None:
        agent, cluster = self.agent, self.agent.cluster
        uuid = agent.state.uuid
        cluster.monitor.started(agent, uuid, assignment)
        assert self.phase == "idle", f"workers started while {self.phase}"
        self.phase = "running"
        self.generation += 1
        self.assignment = assignment
        key = uuid, assignment.round
        if key not in cluster.groups:
            cluster.groups[key] = Group(cluster, uuid, assignment.round, assignment.nodes)
        self.group = cluster.groups[key]
        self.group.join(self, assignment.entry.group_rank)

    def later(self, delay: float, action: Callable[[], object]) -> None:
        """Let these workers do something: they go on while their agent is paused, and die with it."""
        generation = self.generation
        self.agent.world.later(delay, lambda: self.agent.alive and generation == self.generation and action())

    def _tell(self, event: Event) -> None:
        world = self.agent.world
        self._free_at = max(self._free_at, world.now + world.between(0.0, 0.02))
        self.agent.later(self._free_at - world.now, lambda: self.agent.take(event))

    def done(self) -> None:
        if self.phase == "running":
            self.phase = "done"
            assert self.group is not None
            self.agent.cluster.monitor.done(self.agent, self.group.uuid, self.group.number)
            self._tell(WorkersDone(self.agent.world.now))

    def fail(self, kind: str) -> None:
        if self.phase != "running":
            return
        assert self.assignment is not None and self.group is not None
        self.phase = "stopping"
        world, rank = self.agent.world, self.assignment.entry.rank_offset
        signal = world.random.choice((0, 0, 9, 11))
        failure = FailureRecord(
            rank=rank,
            local_rank=0,
            host=self.agent.me.host,
            pid=1,
            code=0 if signal else world.random.choice((1, 3)),
            signal=signal,
            kind=kind,
        )
        self.agent.cluster.monitor.failed(self.agent, self.group.uuid, self.group.number, failure)
        self._tell(WorkersFailed(world.now, failure))
        self.group.breaks(self)
        self.later(self._stopping(), self._stopped)

    def stop(self, manner: str) -> None:
        if self.phase == "running" and manner == NOTICE and self.agent.world.chance(0.5):
            # They save first; whoever asks again has no time for that.
            self.phase = "saving"
            self.later(self.agent.world.between(0.0, 8.0), self._saved)
        elif self.phase in ("running", "saving"):
            self.phase = "stopping"
            assert self.group is not None
            self.group.breaks(self)
            self.later(self._stopping(), self._stopped)
        elif self.phase in ("idle", "done"):
            self._stopped()

    def _saved(self) -> None:
        if self.phase == "saving":
            self.stop("")

    def kill(self) -> None:
        if self.phase in ("running", "saving") and self.group is not None:
            self.group.breaks(self)
        self.phase = "idle"
        self.generation += 1

    def _stopping(self) -> float:
        world = self.agent.world
        return world.between(0.0, 0.2) if world.chance(0.7) else world.between(0.0, 3.0)

    def _stopped(self) -> None:
        self.phase = "idle"
        self._tell(WorkersStopped(self.agent.world.now, self.agent.cluster.fresh_ports()))
