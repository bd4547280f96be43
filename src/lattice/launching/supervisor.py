"""The launcher's side of a launch: nodes on hosts, the store that they meet in, and what comes back from them."""

from __future__ import annotations

import json
import mmap
import os
import platform
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lattice import __version__
from lattice.core.records import OutcomeRecord
from lattice.errors import AgentFailedError
from lattice.launching.channel import BrokenChannelError, Channel, Kind
from lattice.launching.forwarding import LOG, STREAMS
from lattice.launching.hosts import HostSpec
from lattice.launching.parcel import Parcel
from lattice.launching.transports import NodeProcess, Transport
from lattice.launching.tunnel import StoreEntrance
from lattice.stores.memory import MemoryStore
from lattice.stores.served_server import StoreServer

BEAT = 1.0
SILENCE = 10.0
"""seconds without a sign of a node, whose own interpreter is never busy, after which it is lost"""
Sink = Callable[["HostSpec", int, str, bytes], None]
"""takes what workers wrote: host, local rank, stream, bytes"""


@dataclass(frozen=True, slots=True)
class Left:
    """How one worker ended, and what it left."""

    host: HostSpec
    round: int
    rank: int
    local_rank: int
    code: int | None
    signal: int | None
    image: memoryview


@dataclass(frozen=True, slots=True)
class Greeted:
    """A node is there."""

    node: Node
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Finished:
    """A node's part of the run has ended."""

    node: Node
    status: int
    message: str
    outcome: OutcomeRecord | None


@dataclass(frozen=True, slots=True)
class Lost:
    """A node is gone, or never came."""

    node: Node
    reason: str


News = Greeted | Left | Finished | Lost


class Node:
    """One host of a launch, seen from the launcher."""

    def __init__(self, host: HostSpec, process: NodeProcess, server: StoreServer, tell: Callable[[News], None]) -> None:
        self.host = host
        self.process = process
        self.heard = time.monotonic()
        self.facts: dict[str, Any] = {}
        self.sink: Sink = lambda host, local_rank, stream, data: None
        self.channel = Channel(process.stdout, process.stdin)
        self._entrance = StoreEntrance(self.channel, server.adopt)
        self._tell = tell
        self._closed = False
        self._thread = threading.Thread(target=self._listen, name=f"node {host.given}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let it go: with its stream it ends, and all that it started."""
        self._closed = True
        self._entrance.close()
        self.process.kill()
        self._thread.join(5)

    def _listen(self) -> None:
        left: dict[str, Any] = {}
        image = bytearray()
        self.channel.find_start()
        for kind, body in self.channel.receive():
            self.heard = time.monotonic()
            match kind:
                case Kind.HELLO:
                    self.facts = json.loads(body)
                    self._tell(Greeted(self, self.facts))
                case Kind.STORE:
                    self._entrance.received(body)
                case Kind.LOG:
                    local_rank, stream = LOG.unpack_from(body)
                    self.sink(self.host, local_rank, STREAMS[stream], body[LOG.size :])
                case Kind.LEFT:
                    left, image = json.loads(body), bytearray()
                    if left["path"]:
                        self._tell(self._left(left, _mapped(left["path"], left["size"])))
                    elif not left["size"]:
                        self._tell(self._left(left, memoryview(b"")))
                case Kind.REMAINS:
                    image += body
                    if len(image) >= left["size"]:
                        self._tell(self._left(left, memoryview(image)))
                case Kind.FINISHED:
                    end = json.loads(body)
                    outcome = OutcomeRecord.decode(json.dumps(end["outcome"]).encode()) if end["outcome"] else None
                    self._tell(Finished(self, end["status"], end["message"], outcome))
                case _:
                    pass
        if not self._closed:
            self._tell(Lost(self, self.process.diagnose() if not self.facts else self._end()))

    def _end(self) -> str:
        said = self.process.stderr().strip()
        return "the agent ended unexpectedly, or its connection did" + (f"; it said:\n{said}" if said else ".")

    def _left(self, left: dict[str, Any], image: memoryview) -> Left:
        keys = ("round", "rank", "local_rank", "code", "signal")
        return Left(self.host, **{key: left[key] for key in keys}, image=image)


def _mapped(path: str, size: int) -> memoryview:
    if not size:
        return memoryview(b"")
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return memoryview(mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY))
    finally:
        os.close(descriptor)


@dataclass(slots=True)
class Crew:
    """The nodes of a launcher, from the first run to the last."""

    hosts: Sequence[HostSpec]
    transports: dict[str, Transport]
    timeout: float
    nodes: list[Node] = field(default_factory=list)
    _news: queue.SimpleQueue[News] = field(default_factory=queue.SimpleQueue)
    _secret: bytes = field(default_factory=lambda: os.urandom(32))
    _store: MemoryStore = field(default_factory=MemoryStore)
    _server: StoreServer | None = None
    _watcher: threading.Thread | None = None
    _run_id: str = ""
    _closing: threading.Event = field(default_factory=threading.Event)

    def assemble(self, minimum: int) -> None:
        """
        Start an agent on every host, all at the same time.

        :param minimum: as many must come
        :raises AgentFailedError: not so many came; it tells of each host why
        """
        self._server = StoreServer(self._store, None, 0, self._secret)
        for host in self.hosts:
            process = self.transports[host.transport].start(host)
            self.nodes.append(Node(host, process, self._server, self._news.put))
        self._watcher = threading.Thread(target=self._watch, name="alive", daemon=True)
        self._watcher.start()
        missing, problems = set(map(id, self.nodes)), {}
        deadline = time.monotonic() + self.timeout
        while missing:
            try:
                news = self._news.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                break
            if isinstance(news, Greeted):
                missing.discard(id(news.node))
                if problem := unlike(news.facts):
                    problems[id(news.node)] = problem
            elif isinstance(news, Lost):
                missing.discard(id(news.node))
                problems[id(news.node)] = news.reason
        problems |= dict.fromkeys(missing, f"no agent answered within {self.timeout:g}s.")
        told = [(node.host.given, problems[id(node)]) for node in self.nodes if id(node) in problems]
        if len(self.nodes) - len(problems) < minimum:
            self.close()
            raise no_agents(told)
        for node in [node for node in self.nodes if id(node) in problems]:
            node.close()
            self.nodes.remove(node)

    def begin(self, settings: dict[str, Any], payload: Parcel, image: int, sink: Sink) -> None:
        """
        Have every node run something.

        :param settings: what is the same for all of them
        :param payload: what to run
        :param image: a descriptor of the same, for nodes on this host
        :param sink: takes what workers write
        """
        threads = []
        self._run_id = settings["run_id"]
        several = any(node.host.transport != "local" for node in self.nodes)
        for node in self.nodes:
            node.sink = sink
            local = node.host.transport == "local"
            own = {
                "name": node.host.given,
                "address": node.facts["address"] if several else "127.0.0.1",
                "workers": node.host.workers,
                "index": node.host.index,
                "secret": self._secret.hex(),
                "payload": f"/proc/{os.getpid()}/fd/{image}" if local else "",
            }
            threads.append(threading.Thread(target=_brief, args=(node, {**settings, **own}, payload), daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join()

    def news(self, within: float | None) -> News | None:
        """Wait for what happens next; None if nothing did."""
        try:
            return self._news.get(timeout=within)
        except queue.Empty:
            return None

    def stop(self, *, leave: bool) -> None:
        """
        Have all workers of the run ended at once.

        :param leave: whether to break the run off; otherwise the agents still agree on how it ended
        """
        for node in self.nodes:
            try:
                node.channel.tell(Kind.STOP, run_id=self._run_id, leave=leave)
            except BrokenChannelError:
                pass  # it is gone: so are its workers

    def lose(self, node: Node) -> None:
        """Go on without a node."""
        node.close()
        if node in self.nodes:
            self.nodes.remove(node)

    def close(self) -> None:
        """Let all nodes go."""
        self._closing.set()
        if self._watcher is not None:
            self._watcher.join()
        for node in self.nodes:
            node.close()
        self.nodes.clear()
        if self._server is not None:
            self._server.close()
            self._server = None
        self._store.close()

    def _watch(self) -> None:
        while not self._closing.wait(BEAT):
            for node in tuple(self.nodes):
                try:
                    node.channel.send(Kind.ALIVE)
                except BrokenChannelError:
                    continue  # whoever listens to it tells
                if node.facts and time.monotonic() > node.heard + SILENCE:
                    self._news.put(Lost(node, f"it has not been heard of for {SILENCE:g}s."))


def _brief(node: Node, settings: dict[str, Any], payload: Parcel) -> None:
    try:
        node.channel.tell(Kind.SETTINGS, **settings)
        if not settings["payload"]:
            for chunk in payload.chunks():
                node.channel.send_all(Kind.PAYLOAD, chunk)
        node.channel.send(Kind.BEGIN)
    except BrokenChannelError:
        pass  # whoever listens to it tells


def no_agents(told: Sequence[tuple[str, str]]) -> AgentFailedError:
    """Make one error of what is wrong with several hosts."""
    told = [(host, reason.removeprefix(f"{host}: ")) for host, reason in told]
    if len(told) == 1:
        ((host, reason),) = told
        return AgentFailedError(f"no agent on {host}: {reason}", host=host)
    lines = "".join(f"\n  {host}: {reason}" for host, reason in told)
    return AgentFailedError(f"no agent on {len(told)} hosts:{lines}", host=told[0][0] if told else "")


def unlike(facts: dict[str, Any]) -> str:
    """Tell what about a node does not go with this launcher; nothing if all does."""
    here, there = platform.python_version(), facts["python"]
    if here.split(".")[:2] != there.split(".")[:2]:
        return f"it has Python {there} and the launcher {here}: functions cannot be sent between them."
    if facts["lattice"] != __version__:
        return f"it has Lattice {facts['lattice']} and the launcher {__version__}. Install the same on both."
    return ""
