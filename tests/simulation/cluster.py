"""One simulated cluster, from its first agent to the peace after the last fault."""

from __future__ import annotations

from dataclasses import replace

from lattice.core.records import LeaderRecord
from lattice.core.spec import NodeRange
from tests.simulation.agent import SimulatedAgent
from tests.simulation.monitor import BrokenPromiseError, Monitor
from tests.simulation.plan import Fault, draw
from tests.simulation.store import SimulatedStore
from tests.simulation.workers import Group
from tests.simulation.world import World

PEACE = 260.0
"""virtual seconds after the last fault within which everything must have come to its end"""
STEPS = 6000
"""steps of all agents together: more of them mean that somebody is busy with nothing"""


class Cluster:
    """Agents, a store, and the plan that hurts them."""

    run_id = "job"

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.plan = draw(self.world.random)
        self.uneven = seed % 3 == 0
        """whether nodes have different numbers of workers"""
        self.store = SimulatedStore(self.world, self.plan.latency, self.plan.spike)
        self.agents: list[SimulatedAgent] = []
        self.groups: dict[tuple[str, int], Group] = {}
        self.settling = False
        self.monitor = Monitor(self)
        self.trips: list[int] = []
        self.live = 0
        """agents that run"""
        self.steps = 0
        self._port = 20000

    def run(self) -> None:
        """Live through the plan, and check that it came to a good end."""
        world, plan = self.world, self.plan
        for at in plan.starts:
            world.later(at, self.start)
        for fault in plan.faults:
            world.later(fault.at, lambda fault=fault: self._happen(fault))  # type: ignore[misc]
        horizon = max([plan.horizon, *(fault.at for fault in plan.faults)])
        world.run(horizon)
        self._settle()
        self.world.run(horizon + PEACE, ended=self._ended)
        self.monitor.at_peace()

    def start(self, nodes: NodeRange | None = None) -> None:
        """Start an agent on a new node."""
        random = self.world.random
        name = f"{random.randrange(16**4):04x}-{len(self.agents)}"
        policy = self.plan.policy if nodes is None else replace(self.plan.policy, nodes=nodes)
        rank = random.randrange(4) if random.random() < 0.2 else None
        self.live += 1
        workers = random.choice((1, 2))
        workers = workers if self.uneven else 2
        self.agents.append(SimulatedAgent(self, name, policy, workers=workers, rank=rank))

    def fresh_ports(self) -> tuple[int, ...]:
        self._port += 1
        return (self._port,)

    def count_step(self) -> None:
        """Notice that somebody is busy with nothing."""
        self.steps += 1
        if self.steps > STEPS:
            raise BrokenPromiseError(f"more than {STEPS} steps")

    def _ended(self) -> bool:
        return not self.live

    def _pick(self, fault: Fault) -> SimulatedAgent | None:
        running = [agent for agent in self.agents if agent.running]
        if "leader" in fault.kind:
            leader = self.monitor.mirror.get(self.monitor.keys.leader)
            name = LeaderRecord.decode(leader.value).incarnation if leader else ""
            return next((agent for agent in running if agent.name == name), None)
        return running[int(fault.which * len(running))] if running else None

    def _happen(self, fault: Fault) -> None:
        agent, store = self._pick(fault), self.store
        match fault.kind.removesuffix(" leader"):
            case "crash" if agent:
                agent.crash()
            case "restart" if agent:
                agent.crash()
                self.world.later(min(fault.lasts, 6.0), self.start)
            case "pause" if agent:
                agent.pause(fault.lasts)
            case "goodbye" if agent:
                agent.goodbye()
            case "cut" if agent:
                agent.partition(fault.lasts)
            case "trip":
                self.trips.append(int(fault.lasts))
            case "join":
                self.start()
            case "odd":
                nodes = self.plan.policy.nodes
                self.start(NodeRange(nodes.minimum, nodes.maximum + 1))
            case "compact":
                store.machine.compact(store.machine.revision)
            case "away" | "emptied" if store.up:
                store.go_away(refuses="silent" not in fault.detail)
                lapsed, emptied = "lapsed" in fault.detail, fault.detail if fault.kind == "emptied" else ""
                self.monitor.store_away(fault.lasts)
                self.world.later(fault.lasts, lambda: store.come_back(lapsed=lapsed, emptied=emptied))
                if fault.beside == "newcomer":
                    self.world.later(fault.lasts * 0.9, self.start)
                elif fault.beside == "straggler" and agent:
                    agent.partition(fault.lasts + fault.which * 15)

    def wrote_as_leader(self, writer: str) -> None:
        """Kill a leader right after its n-th decision, if the plan says so."""
        self.trips = [left - 1 for left in self.trips]
        if 0 in self.trips:
            self.trips.remove(0)
            for agent in self.agents:
                if agent.name == writer:
                    self.world.later(0.0, agent.crash)

    def _settle(self) -> None:
        """From now on nothing goes wrong; what runs comes to its end unless the plan says that it runs for ever."""
        self.settling = True
        self.trips.clear()
        self.world.note("plan", "PEACE")
        self.store.spike = 0.0
        if not self.store.up:
            self.store.come_back(lapsed=False)
        for agent in self.agents:
            agent.resume()
            agent.heal()
        if self.plan.forever:
            return
        for group in self.groups.values():
            if group.fate == "hang" and not group.broken:
                group.fate = "done"
                if len(group.members) == group.nodes:
                    group.finish()
