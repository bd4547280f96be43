"""
``python -m benchmarks.scale_agents``: many agents in one process, told by lines of JSON what to do.

Real: the protocol (:mod:`lattice.core.rendezvous`), the session with its thread (:mod:`lattice.agent.session`), the
etcd client with a connection and a watch for each agent. Not real: there are no workers, whose start and stop are
answered at once, and the agents of one process share one loop and one interpreter lock.
"""

from __future__ import annotations

import gc
import heapq
import json
import os
import queue
import sys
import threading
import time
from collections import Counter, deque
from typing import Any

from benchmarks.scale_floor import Floor
from lattice.agent.inbox import merged
from lattice.agent.session import Session, SessionConnected
from lattice.core import rendezvous
from lattice.core.electing import EAGER
from lattice.core.events import (
    Disconnected,
    Event,
    Finish,
    GoodbyeAsked,
    Note,
    StartWorkers,
    StopWorkers,
    Ticked,
    WorkersStopped,
)
from lattice.core.member import greet
from lattice.core.spec import NodeRange, Policy
from lattice.core.state import Identity, lease_of
from lattice.stores.etcd import EtcdStore

WORKERS = 8
"""that each node says it has"""


class Agent:
    """One simulated agent; its events arrive in the inbox that all agents of the process share."""

    def __init__(self, number: int, told: dict[str, Any], inbox: queue.SimpleQueue[Any]) -> None:
        self.me = Identity(
            run_id=told["run"],
            incarnation=incarnation(told),
            host=f"node-{number:05}.cluster.example",
            address=f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}",
            workers=WORKERS,
        )
        policy = Policy(NodeRange(told["minimum"], told["maximum"]), lease_ttl=told["lease_ttl"])
        store = EtcdStore((tuple(told["endpoint"]),), request_timeout=told["request_timeout"])
        self.events: deque[Event] = deque()
        self.state = rendezvous.begin(self.me, policy, (20000,), time.monotonic())
        self.number = number - told["first"]
        self.moment = 0.0
        self.epoch = 0
        self.over = False
        self.session = Session(
            store,
            self.me.keys,
            policy.lease_ttl,
            lambda event: inbox.put((self, event)),
            lambda lease: greet(self.me, policy, self.state.ports, lease),
        )


def incarnation(told: dict[str, Any]) -> str:
    """Make a name; for the agent that is to lead one that need not wait for its turn."""
    while True:
        name: str = (told["mark"] + os.urandom(8).hex())[:16]
        if not told["eager"] or lease_of(name, "turn") % told["maximum"] < EAGER:
            return name


class Host:
    """The agents of one process and the loop that they share."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.agents: list[Agent] = []
        self.moments: list[tuple[float, int]] = []
        self.floor: Floor | None = None
        self.started: Counter[int] = Counter()
        self.living = 0
        self.steps = 0

    def run(self) -> None:
        """Take orders and events until told to end."""
        # What many agents make in one process would be looked through as often as if it were one agent's.
        gc.disable()
        # Nor has an agent hundreds of threads that take the interpreter from each other.
        sys.setswitchinterval(0.05)
        say(ready=True)
        threading.Thread(target=self._listen, daemon=True).start()
        while True:
            patience = None if not self.moments else max(self.moments[0][0] - time.monotonic(), 0.0)
            try:
                taken = [self.inbox.get(timeout=patience)]
                while not self.inbox.empty():
                    taken.append(self.inbox.get_nowait())
            except queue.Empty:
                taken = []
            touched: dict[int, Agent] = {}
            for agent, event in taken:
                if agent is None:
                    self._obey(event)
                else:
                    agent.events.append(event)
                    touched[id(agent)] = agent
            for agent in touched.values():
                for event in merged(agent.events):
                    self._handle(agent, event)
            self._tick()

    def _listen(self) -> None:
        for line in sys.stdin:
            self.inbox.put((None, json.loads(line)))
        os._exit(0)

    def _obey(self, told: dict[str, Any]) -> None:
        match told["do"]:
            case "floor":
                what = told["what"]
                self.floor = self.floor or Floor(tuple(told["endpoint"]), told["count"], told["request_timeout"])
                say(floor=what, at=self.floor.wave(what, lambda: say(begun=what)))
                if what == "leave":
                    self.floor = None
            case "prepare":
                self.agents = [Agent(told["first"] + number, told, self.inbox) for number in range(told["count"])]
                self.living, self.started = len(self.agents), Counter()
                say(prepared=[agent.me.incarnation for agent in self.agents])
            case "start":
                for agent in self.agents:
                    agent.session.start()
            case "goodbye":
                self.inbox.put((self.agents[0], GoodbyeAsked(time.monotonic(), 15)))
                self.living -= 1

    def _tick(self) -> None:
        now = time.monotonic()
        while self.moments and self.moments[0][0] <= now:
            _, number = heapq.heappop(self.moments)
            agent = self.agents[number]
            if not agent.over and (moment := rendezvous.deadline(agent.state)) is not None:
                agent.moment = moment
                if moment <= now:
                    self._handle(agent, Ticked(now))
                else:
                    heapq.heappush(self.moments, (moment, number))

    def _handle(self, agent: Agent, event: Event) -> None:
        if agent.over:
            return
        if isinstance(event, SessionConnected):
            agent.epoch = event.epoch
        elif isinstance(event, Disconnected):
            say(trouble=event.reason)
        self.steps += 1
        agent.state, effects = rendezvous.step(agent.state, event)
        for effect in effects:
            match effect:
                case StartWorkers(assignment=assignment):
                    self.started[assignment.round] += 1
                    if self.started[assignment.round] >= self.living:
                        say(started=assignment.round, at=time.monotonic(), steps=self.steps)
                case StopWorkers():
                    self.inbox.put((agent, WorkersStopped(time.monotonic(), agent.state.ports)))
                case Finish():
                    agent.over = True
                    threading.Thread(target=agent.session.close, daemon=True).start()
                case Note():
                    pass
                case _:
                    agent.session.perform(effect, agent.epoch)
        moment = None if agent.over else rendezvous.deadline(agent.state)
        if moment is not None and moment != agent.moment:
            agent.moment = moment
            heapq.heappush(self.moments, (moment, agent.number))


def say(**facts: Any) -> None:
    """Tell the process that asked."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    Host().run()
