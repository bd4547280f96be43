"""A cluster of simulated agents in a few processes: the leader alone in one, and those to be lost in their own."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.jobs import ROOT
from benchmarks.scale_floor import Conductor
from lattice.core.keyspace import Batch, Removed
from lattice.core.records import Keys, LeaderRecord
from lattice.errors import LatticeError
from lattice.stores.etcd import EtcdStore

LEASE_TTL = 10.0
"""twice the default: the keepalives of all nodes come from the cores on which etcd runs, and are not the point"""
REQUEST_TIMEOUT = 20.0
"""more than an agent's: here all clients and etcd share two cores, and a slow answer must not become another try"""
HEAD_START = 0.1
"""seconds by which the agent that is to lead comes before the others, so that its cost can be told from theirs"""
PATIENCE = 180.0
RUN = "scale"
LEADER, ONE, TENTH = "leader", "one", "tenth"
MARK = "dead"
"""what the incarnations of the tenth begin with, so that one watch sees these and hardly any other"""


class StuckError(RuntimeError):
    """What should have happened did not."""


@dataclass(slots=True)
class Host:
    """One process with some of the agents."""

    name: str
    count: int
    process: subprocess.Popen[str]
    listener: threading.Thread
    incarnations: tuple[str, ...] = ()


class Cluster:
    """
    Agents that are there and can be started.

    :param endpoint: where etcd is
    :param nodes: how many agents
    :param spread: over how many processes those are spread that stay to the end
    """

    def __init__(self, endpoint: str, nodes: int, spread: int, lease_ttl: float = LEASE_TTL) -> None:
        self.endpoint, self.nodes = endpoint, nodes
        self._lease_ttl = lease_ttl
        self.round = 0
        self.troubles: list[str] = []
        host, _, port = endpoint.rpartition(":")
        self._address = (host, int(port))
        self._news: queue.SimpleQueue[tuple[str, dict[str, Any]]] = queue.SimpleQueue()
        tenth = max(nodes // 10, 1)
        rest = nodes - 2 - tenth
        shares = [rest // spread + (number < rest % spread) for number in range(spread)]
        sizes = {LEADER: 1, ONE: 1, TENTH: tenth} | {f"rest {number}": count for number, count in enumerate(shares)}
        self.hosts = {name: self._spawn(name, count) for name, count in sizes.items() if count}
        self._observer = EtcdStore((self._address,), request_timeout=REQUEST_TIMEOUT)
        self._hear("ready", True)

    def _spawn(self, name: str, count: int) -> Host:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        argv = [sys.executable, "-m", "benchmarks.scale_agents"]
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )
        listener = threading.Thread(target=self._listen, args=(name, process), daemon=True)
        listener.start()
        return Host(name, count, process, listener)

    def _listen(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._news.put((name, json.loads(line)))
        self._news.put((name, {"ended": process.wait()}))

    def close(self) -> None:
        """End all of it."""
        for host in list(self.hosts.values()):
            self.kill(host.name)
        self._observer.close()

    # -- what is measured ------------------------------------------------------------------------------------------

    def floor(self, what: str) -> float:
        """
        Let as many clients as there will be agents do one bare thing.

        :return: the seconds until the last was done
        """
        conductor = Conductor(self._observer, self.nodes) if what in ("join", "again") else None
        began = time.monotonic()
        for host in self.hosts.values():
            self._tell(host, do="floor", what=what, count=host.count)
        if conductor is not None:
            if what == "again":
                self._hear("begun", what)
                began = time.monotonic()
                conductor.ring()
            conductor.wait(PATIENCE)
            conductor.ring()
        return float(max(self._hear("floor", what).values())) - began

    def prepare(self, minimum: int) -> None:
        """Make the agents, which do nothing yet."""
        first = 0
        for host in self.hosts.values():
            self._tell(host, do="prepare", run=RUN, minimum=minimum, maximum=self.nodes, count=host.count, first=first)
            first += host.count
        for name, incarnations in self._hear("prepared", None).items():
            self.hosts[name].incarnations = tuple(incarnations)

    def start(self, *, together: bool) -> float:
        """
        Start all agents.

        :param together: whether the leader-to-be gets no head start
        :return: when (all but the leader) began
        """
        others = list(self.hosts.values())
        if not together:
            self._tell(self.hosts[LEADER], do="start")
            others.remove(self.hosts[LEADER])
            time.sleep(HEAD_START)
        began = time.monotonic()
        for host in others:
            self._tell(host, do="start")
        return began

    def started(self) -> float:
        """
        Wait until every agent that is left has started its workers of one and the same round after the last.

        :return: when the last of them did
        """
        moments: dict[int, dict[str, float]] = {}
        deadline = time.monotonic() + PATIENCE
        while True:
            name, facts = self._next(deadline, f"round {self.round + 1}")
            number = facts.get("started", 0)
            if number > self.round and name in self.hosts:
                moments.setdefault(number, {})[name] = facts["at"]
                if moments[number].keys() >= self.hosts.keys():
                    self.round = number
                    return max(moments[number].values())

    def leads(self) -> bool:
        """Tell whether the agent that is alone in its process leads."""
        found = self._observer.read(Keys(RUN).leader).items
        return bool(found) and LeaderRecord.decode(found[0].value).incarnation in self.hosts[LEADER].incarnations

    def kill(self, name: str) -> None:
        """SIGKILL one process, and with it its agents: nobody is told, their leases lapse."""
        host = self.hosts.pop(name)
        host.process.kill()
        host.listener.join()
        for pipe in (host.process.stdin, host.process.stdout):
            if pipe is not None:
                pipe.close()

    def goodbye(self) -> float:
        """
        Tell one agent to leave.

        :return: when
        """
        host = next(host for host in self.hosts.values() if host.name.startswith("rest"))
        began = time.monotonic()
        self._tell(host, do="goodbye")
        return began

    def lapses(self, name: str) -> Lapses:
        """Watch the registrations of the agents of one process go."""
        return Lapses(self._observer, self.hosts[name].incarnations)

    # -- talking to the processes ----------------------------------------------------------------------------------

    def _tell(self, host: Host, **order: Any) -> None:
        assert host.process.stdin is not None
        known = {"endpoint": self._address, "lease_ttl": self._lease_ttl, "request_timeout": REQUEST_TIMEOUT}
        mark = MARK if host.name == TENTH else ""
        host.process.stdin.write(json.dumps({**known, "mark": mark, "eager": host.name == LEADER, **order}) + "\n")
        host.process.stdin.flush()

    def _hear(self, about: str, value: Any) -> dict[str, Any]:
        heard: dict[str, Any] = {}
        deadline = time.monotonic() + PATIENCE
        while heard.keys() < self.hosts.keys():
            name, facts = self._next(deadline, about)
            if about in facts and value in (None, facts[about]):
                heard[name] = facts.get("at", facts[about])
        return heard

    def _next(self, deadline: float, waiting: str) -> tuple[str, dict[str, Any]]:
        while True:
            try:
                name, facts = self._news.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise StuckError(f"{self.nodes} nodes: no {waiting} within {PATIENCE:.0f}s") from None
            if "ended" in facts and name in self.hosts:
                raise StuckError(f"{self.nodes} nodes: the process of {name} ended with {facts['ended']}")
            if "trouble" in facts:
                self.troubles.append(facts["trouble"])
                continue
            return name, facts


class Lapses:
    """The moments at which registrations went away."""

    def __init__(self, store: EtcdStore, incarnations: tuple[str, ...]) -> None:
        keys = Keys(RUN)
        prefix = keys.node(MARK if len(incarnations) > 1 else incarnations[0])
        self._left = {keys.node(incarnation) for incarnation in incarnations}
        self._done = threading.Event()
        self.moments: list[float] = []
        self._watch = store.watch(prefix, store.read(prefix).revision, self._see)

    def _see(self, item: Batch | LatticeError) -> None:
        if isinstance(item, LatticeError):
            return
        for change in item.changes:
            if isinstance(change, Removed) and change.key in self._left:
                self._left.remove(change.key)
                self.moments.append(time.monotonic())
        if not self._left:
            self._done.set()

    def wait(self) -> list[float]:
        """Wait for the last of them, and give all moments."""
        if not self._done.wait(PATIENCE):
            raise StuckError(f"{len(self._left)} leases did not lapse within {PATIENCE:.0f}s")
        self._watch.cancel()
        return self.moments
