"""The launcher's side of a launch: nodes on hosts, the store that they meet in, and what comes back from them."""

from __future__ import annotations

import json
import mmap
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from lattice.core.dataclass import dataclass, replace
from lattice.core.records import OutcomeRecord
from lattice.launching.channel import AGENT, LOG, STREAMS, TAKEN, BrokenChannelError, Channel, Kind
from lattice.launching.hosts import HostSpec
from lattice.launching.invitation import Invitation, reception_for, warn_of_insecure
from lattice.launching.meeting import addresses, facing_node, place
from lattice.launching.parcel import Parcel
from lattice.launching.problems import no_agents, refuse_large, unlike
from lattice.launching.room import machine, room
from lattice.launching.transports import CALL_BACK, NodeProcess, Transport
from lattice.launching.tunnel import StoreEntrance
from lattice.launching.variables import unasked
from lattice.process.addresses import facing, is_own
from lattice.stores.memory import MemoryStore
from lattice.stores.served_server import StoreServer

if TYPE_CHECKING:
    from lattice.launching.reception import Reception

BEAT = 1.0
SILENCE = 10.0
"""seconds without a sign of a node, whose own interpreter is never busy, after which it is lost"""
PATIENCE = 15.0
"""seconds that other hosts have to answer once a launch is in vain; ssh gives up after 10"""
LOOK = 0.1
"""seconds between two looks at what the caller wants"""
LAST_WORDS = 2.0
"""seconds in which what started a node that is gone should end, too, and say why"""
Sink = Callable[["Node", int | None, str, bytes], None]
"""takes what workers, or agents themselves, wrote, and returns at once: node, local rank, stream, bytes"""


@dataclass(frozen=True, slots=True)
class Left:
    """How one worker ended, and what it left."""

    host: HostSpec
    round: int
    rank: int
    local_rank: int
    world: int
    """workers of that round"""
    code: int | None
    signal: int | None
    image: memoryview
    refused: int = 0
    """bytes of it, if there is no room for them here"""


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


@dataclass(frozen=True, slots=True)
class Told:
    """A node said something about the project."""

    node: Node
    kind: Kind
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Reported:
    """A node tells how it stands: an event of its journal."""

    node: Node
    event: str
    facts: dict[str, Any]


News = Greeted | Left | Finished | Lost | Told | Reported


class Node:
    """One host of a launch, seen from the launcher."""

    def __init__(
        self,
        host: HostSpec,
        process: NodeProcess,
        server: StoreServer,
        tell: Callable[[News], None],
        admit: Callable[[int], bool],
        reception: Reception | None = None,
    ) -> None:
        self.host = host
        self.process = process
        self.heard = time.monotonic()
        self.facts: dict[str, Any] = {}
        self.inherited = frozenset() if host.transport == "ssh" else frozenset(os.environ)
        """names of the variables that it has from this process"""
        self.sink: Sink = lambda node, local_rank, stream, data: None
        self.channel = Channel(process.stdout, process.stdin)
        self._entrance = StoreEntrance(self.channel, server.adopt)
        self._tell = tell
        self._admit = admit
        self._invitation = (
            Invitation(reception, self.channel, self._settled) if reception and host.transport in CALL_BACK else None
        )
        self._closed = False
        self._thread = threading.Thread(target=self._listen, name=f"node {host.given}", daemon=True)
        self._thread.start()

    def took(self, size: int) -> None:
        """Tell it that there is room for as many bytes of logs again."""
        try:
            self.channel.send(Kind.TAKEN, TAKEN.pack(size))
        except BrokenChannelError:
            pass  # it is gone

    def close(self) -> None:
        """Let it go: with its stream it ends, and all that it started."""
        self._closed = True
        self.channel.shut()
        self._entrance.close()
        self.process.kill()
        self._thread.join(5)
        if self._invitation is not None:
            self._invitation.close()

    def _settled(self, problem: str) -> None:
        self.facts["insecure"] = problem
        self._tell(Greeted(self, self.facts))

    def _listen(self) -> None:
        left: dict[str, Any] = {}
        image, at = memoryview(b""), 0
        self.channel.find_start()
        for kind, body in self.channel.receive():
            self.heard = time.monotonic()
            match kind:
                case Kind.HELLO:
                    self.facts = json.loads(body)
                    self.process.listen(lambda line: self.sink(self, None, "stderr", line))
                    if self._invitation is None or unlike(self.facts):
                        self._tell(Greeted(self, self.facts))
                    else:
                        self._invitation.invite(facing_node(self.host.transport, self.facts, self.host.given))
                case Kind.CALL:
                    assert self._invitation is not None
                    self._invitation.received(body)
                case Kind.STORE:
                    self._entrance.received(body)
                case Kind.LOG:
                    local_rank, stream = LOG.unpack_from(body)
                    self._logged(local_rank, STREAMS[stream], body[LOG.size :])
                case Kind.LEFT:
                    left, image, at = json.loads(body), memoryview(b""), 0
                    if left["path"]:
                        self._tell(self._left(left, _mapped(left["path"], left["size"])))
                    elif not left["size"]:
                        self._tell(self._left(left, image))
                    elif not self._admit(left["size"]):
                        self._tell(replace(self._left(left, image), refused=left["size"]))
                    else:
                        image = memoryview(bytearray(left["size"]))
                case Kind.REMAINS if image:
                    image[at : at + len(body)] = body
                    at += len(body)
                    if at == len(image):
                        self._tell(self._left(left, image))
                case Kind.FINISHED:
                    end = json.loads(body)
                    outcome = OutcomeRecord.decode(json.dumps(end["outcome"]).encode()) if end["outcome"] else None
                    self._tell(Finished(self, end["status"], end["message"], outcome))
                case Kind.WANTED | Kind.SYNCED:
                    self._tell(Told(self, kind, json.loads(body)))
                case _:
                    pass
        if not self._closed:
            self._tell(Lost(self, self.process.diagnose() if not self.facts else self._end()))

    def _logged(self, local_rank: int, stream: str, data: bytes) -> None:
        if stream == "events":
            facts = json.loads(data)
            self._tell(Reported(self, facts.pop("event"), facts))
        else:
            self.sink(self, None if local_rank == AGENT else local_rank, stream, data)

    def _end(self) -> str:
        if self._invitation is not None:  # what srun has to say comes another way, and later
            ending = select.poll()
            ending.register(self.process.pidfd, select.POLLIN)
            ending.poll(LAST_WORDS * 1000)
        said = self.process.stderr().strip()
        return "the agent ended unexpectedly, or its connection did" + (f"; it said:\n{said}" if said else ".")

    def _left(self, left: dict[str, Any], image: memoryview) -> Left:
        keys = ("round", "rank", "local_rank", "world", "code", "signal")
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
    hear: Callable[[News], None] = lambda news: None
    """hears of all that happens, in any thread"""
    _news: queue.SimpleQueue[News] = field(default_factory=queue.SimpleQueue)
    _secret: bytes = field(default_factory=lambda: os.urandom(32))
    _store: MemoryStore = field(default_factory=MemoryStore)
    _server: StoreServer | None = None
    _watcher: threading.Thread | None = None
    _run_id: str = ""
    _closing: threading.Event = field(default_factory=threading.Event)
    _room: int = 0
    _admitting: threading.Lock = field(default_factory=threading.Lock)

    def assemble(self, minimum: int, cancelled: threading.Event) -> None:
        """
        Start an agent on every host that has none, all at the same time: the first time on each of them.

        :param minimum: as many must be there then
        :param cancelled: ends the wait
        :raises AgentFailedError: there are not so many; it tells of each host why
        """
        if self._server is None:
            self._server = StoreServer(self._store, None, 0, self._secret)
            self._watcher = threading.Thread(target=self._watch, name="alive", daemon=True)
            self._watcher.start()
        while (news := self.news(0)) is not None:  # what happened since the last run
            if isinstance(news, Lost):
                self.lose(news.node)
        there = [node.host.index for node in self.nodes]
        coming = [host for host in self.hosts if host.index not in there]
        awaited: list[Node] = []
        with reception_for(host.transport for host in coming) as reception:
            for host in coming:
                process = self.transports[host.transport].start(host)
                awaited.append(Node(host, process, self._server, self._happened, self._admit, reception))
                self.nodes.append(awaited[-1])
            problems = self._problems(awaited, minimum, cancelled)
        for node in [node for node in self.nodes if node.host.index in problems]:
            self.lose(node)
        self.nodes.sort(key=lambda node: node.host.index)
        if cancelled.is_set():
            raise InterruptedError("the launch was cancelled.")
        warn_of_insecure({node.host.given: node.facts.get("insecure", "") for node in awaited})
        if len(self.nodes) < minimum:
            raise no_agents([(host.given, problems[host.index]) for host in self.hosts if host.index in problems])

    def _problems(self, awaited: list[Node], minimum: int, cancelled: threading.Event) -> dict[int, str]:
        """Wait until nodes are there, and tell what is wrong with those that are not, by the place of their host."""
        missing = {node.host.index for node in awaited}
        problems: dict[int, str] = {}
        deadline = time.monotonic() + self.timeout
        while missing and time.monotonic() < deadline and not cancelled.is_set():
            match self.news(LOOK):
                case Greeted(node=node, facts=facts):
                    problem = unlike(facts)
                case Lost(node=node, reason=problem):
                    pass
                case _:
                    continue
            missing.discard(node.host.index)
            if problem:
                problems.setdefault(node.host.index, problem)
                if len(self.nodes) - len(problems) < minimum:
                    # It is in vain, so nobody shall wait long to hear why; the others may tell what they lack, too.
                    deadline = min(deadline, time.monotonic() + PATIENCE)
        slow = {node.host.index: node.process.diagnose() for node in awaited if node.host.index in missing}
        return {**problems, **slow}

    def refuse_large(self, payload: Parcel) -> None:
        """
        Refuse what a host has no room for.

        :raises TooLarge: names the host
        """
        refuse_large([(node.host, node.facts) for node in self.nodes], payload.size)

    def begin(self, settings: dict[str, Any], payload: Parcel, image: int, sink: Sink) -> None:
        """
        Have every node run something.

        :param settings: what is the same for all of them
        :param payload: what to run
        :param image: a descriptor of the same, for nodes on this host
        :param sink: takes what workers and agents write
        """
        self._run_id = settings["run_id"]
        self._room = room()
        here = machine()
        places = [place(node.host.transport, node.facts, here) for node in self.nodes]
        for node, address in zip(self.nodes, addresses(places, is_own, facing), strict=True):
            node.sink = sink
            local = node.host.transport == "local"
            own = {
                "name": node.host.given,
                "address": address,
                "workers": node.host.workers,
                "index": node.host.index,
                "forgotten": sorted(unasked(node.inherited, os.environ)),
                "secret": self._secret.hex(),
                "room": self._room,
                "payload": f"/proc/{os.getpid()}/fd/{image}" if local else "",
            }
            _in_background(_brief, node, {**settings, **own}, payload)

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
            _in_background(_tell_stop, node, self._run_id, leave)

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

    def _admit(self, size: int) -> bool:
        """Tell whether there is room for so many more bytes of results."""
        with self._admitting:
            self._room -= size
            return self._room >= 0

    def _happened(self, news: News) -> None:
        self.hear(news)
        if not isinstance(news, Reported):
            self._news.put(news)

    def _watch(self) -> None:
        while not self._closing.wait(BEAT):
            for node in tuple(self.nodes):
                node.channel.beat()
                if node.facts and time.monotonic() > node.heard + SILENCE:
                    self._happened(Lost(node, f"it has not been heard of for {SILENCE:g}s."))


def _in_background(target: Callable[..., None], *arguments: Any) -> None:
    """Send something to a node: whoever does not read it holds up nobody else, and is lost after a while."""
    threading.Thread(target=target, args=arguments, name=target.__name__, daemon=True).start()


def _tell_stop(node: Node, run_id: str, leave: bool) -> None:
    try:
        node.channel.tell(Kind.STOP, run_id=run_id, leave=leave)
    except BrokenChannelError:
        pass  # it is gone: so are its workers


def _brief(node: Node, settings: dict[str, Any], payload: Parcel) -> None:
    try:
        node.channel.tell(Kind.SETTINGS, **settings)
        if not settings["payload"]:
            for chunk in payload.chunks():
                node.channel.send_all(Kind.PAYLOAD, chunk)
        node.channel.send(Kind.BEGIN)
    except BrokenChannelError:
        pass  # whoever listens to it tells
