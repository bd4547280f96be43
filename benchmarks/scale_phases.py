"""What is done to a cluster of simulated agents, and what each step of it took and cost."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks import scale_meters
from benchmarks.etcd import SERVERS, running_etcd
from benchmarks.scale_cluster import LEADER, ONE, TENTH, Cluster
from benchmarks.scale_meters import Reading

QUIET = 10.5
"""seconds that a round lasts before something is done to it: Lattice makes the round after a shorter one wait"""
FLOORS = ("register", "write", "read", "join", "again")
TOGETHER, FIRST, IDLE, LAPSE, GOODBYE, TENTH_LOST, LEADER_LOST = (
    "first round, all at the same moment",
    "first round, one a little earlier than the others",
    "a second of training",
    "one node lost, its lease lapses",
    "one node says goodbye",
    "a tenth lost, their leases lapse",
    "the leader lost, its lease lapses",
)
PHASES = (TOGETHER, FIRST, IDLE, LAPSE, GOODBYE, TENTH_LOST, LEADER_LOST)


@dataclass(frozen=True, slots=True)
class Phase:
    """One step."""

    name: str
    nodes: int
    seconds: float
    """until all had started the round; what passed before the last lease lapsed is not in it"""
    cost: Reading
    lapse: float = 0.0
    """seconds before that, from the loss to the lapse of the last lease"""
    leader_known: bool = True
    """whether the leader was alone in its process, so that its processor time is known"""


@dataclass(slots=True)
class Result:
    """One cluster from beginning to end."""

    nodes: int
    floors: dict[str, tuple[float, Reading]] = field(default_factory=dict)
    phases: list[Phase] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


def measure(nodes: int, spread: int, wanted: Callable[[str], bool]) -> Iterator[Result]:
    """
    Measure clusters of one size: one that starts at the same moment, one that is followed through its losses.

    :param wanted: tells by its name whether a phase is to be measured; first rounds always are where others follow
    """
    if wanted(TOGETHER):
        with cluster(nodes, spread) as stage:
            stage.first_round(together=True)
        yield stage.result
    if any(wanted(name) for name in PHASES[1:]):
        with cluster(nodes, spread) as stage:
            stage.first_round(together=False)
            losses = [name for name in PHASES[3:] if wanted(name)]
            if losses or wanted(IDLE):
                stage.rest(keep=wanted(IDLE))
            for name in losses:
                stage.phase(name)
                if name != losses[-1]:
                    stage.rest()
        yield stage.result


@contextmanager
def cluster(nodes: int, spread: int) -> Iterator[Stage]:
    """Run an etcd of its own and agents that are ready to start."""
    with running_etcd() as endpoint:
        if not endpoint:
            raise SystemExit("there is no etcd in PATH; install etcd-server, or run `make system`")
        agents = Cluster(endpoint, nodes, spread)
        try:
            yield Stage(agents, next(iter(SERVERS)))
        finally:
            agents.close()


class Stage:
    """Does things to a cluster and writes down what they cost."""

    def __init__(self, agents: Cluster, etcd: int) -> None:
        self.result = Result(agents.nodes, troubles=agents.troubles)
        self._agents = agents
        self._etcd = etcd
        self._leader_known = False

    def first_round(self, *, together: bool) -> None:
        """Measure the floors, then let all agents start."""
        agents, nodes = self._agents, self._agents.nodes
        for what in FLOORS:
            if what == "join":
                agents.floor("leave")  # joining begins with a new connection
            before = self._read()
            seconds = agents.floor(what)
            self.result.floors[what] = (seconds, self._read().since(before))
            cost = self.result.floors[what][1]
            progress(
                f"{nodes} nodes: floor, {what}: {seconds:.2f} s, CPU etcd {cost.etcd_cpu:.2f} clients "
                f"{cost.agents_cpu + cost.leader_cpu:.2f}"
            )
        agents.floor("leave")
        agents.prepare(minimum=max(nodes // 2, 1))
        before = self._read()
        began = agents.start(together=together)
        seconds = agents.started() - began
        self._leader_known = agents.leads()
        self._note(TOGETHER if together else FIRST, seconds, self._read().since(before))

    def rest(self, *, keep: bool = False) -> None:
        """Let the round get old, which shows what it costs when nothing happens."""
        before, began = self._read(), time.monotonic()
        time.sleep(QUIET)
        if keep:
            self._note(IDLE, 1.0, _per_second(self._read().since(before), time.monotonic() - began))

    def phase(self, name: str) -> None:
        """Do something to the round."""
        if name == GOODBYE:
            before = self._read()
            began = self._agents.goodbye()
            self._note(name, self._agents.started() - began, self._read().since(before))
        else:
            self._lose(name, {LAPSE: ONE, TENTH_LOST: TENTH, LEADER_LOST: LEADER}[name])

    def _lose(self, name: str, victim: str) -> None:
        agents = self._agents
        lapses = agents.lapses(victim)
        if victim == LEADER:
            self._leader_known = False
        agents.kill(victim)
        before, began = self._read(), time.monotonic()
        seconds = agents.started()
        lapsed = max(lapses.wait())
        self._note(name, seconds - lapsed, self._read().since(before), lapsed - began)

    def _note(self, name: str, seconds: float, cost: Reading, lapse: float = 0.0) -> None:
        phase = Phase(name, self._agents.nodes, seconds, cost, lapse, self._leader_known)
        self.result.phases.append(phase)
        methods = ", ".join(f"{method} {count:.0f}" for method, count in sorted(cost.requests.items()))
        cpu = f"etcd {cost.etcd_cpu:.2f} leader {cost.leader_cpu:.2f} others {cost.agents_cpu:.2f}"
        progress(
            f"{phase.nodes} nodes: {name}: {seconds:.2f} s (+ {lapse:.2f} s lapse), CPU {cpu}; {methods}; "
            f"events {cost.events:.0f}, {cost.received / 1e3:.0f} kB in, {cost.sent / 1e3:.0f} kB out"
        )

    def _read(self) -> Reading:
        hosts = self._agents.hosts
        leader = hosts[LEADER].process.pid if LEADER in hosts else 0
        others = [host.process.pid for name, host in hosts.items() if name != LEADER]
        return scale_meters.read(self._agents.endpoint, self._etcd, leader, others)


def _per_second(cost: Reading, seconds: float) -> Reading:
    requests = {name: count / seconds for name, count in cost.requests.items()}
    rest = (cost.events, cost.proposals, cost.received, cost.sent, cost.etcd_cpu, cost.leader_cpu, cost.agents_cpu)
    return Reading(requests, *(value / seconds for value in rest))


def progress(text: str) -> None:
    """Tell whoever waits."""
    print(text, file=sys.stderr, flush=True)
