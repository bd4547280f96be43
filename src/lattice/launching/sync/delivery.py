"""The launcher's side of bringing a project: each store gets what it lacks, once; who can't take it is named."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from lattice.errors import UsageError
from lattice.launching.channel import CHUNK, BrokenChannelError, Kind
from lattice.launching.problems import no_agents
from lattice.launching.supervisor import LOOK, Crew, Lost, Node, Told
from lattice.launching.sync.manifest import shown
from lattice.launching.sync.snapshot import ChangedMeanwhile, Snapshot

TRIES = 5
"""snapshots that are taken of a project that changes while it is sent"""
SILENT = 2.0
"""seconds in which nothing is said of it"""
INTERVAL = 5.0
"""seconds between two words on how far it is"""


def deliver(
    crew: Crew,
    snapshot: Snapshot,
    again: Callable[[], Snapshot],
    minimum: int,
    *,
    say: Callable[[str], None],
    cancelled: threading.Event,
) -> tuple[Snapshot, dict[str, int]]:
    """
    Have the project on every host but this one.

    :param crew: the nodes; those that cannot take it are let go if enough are left
    :param snapshot: of the project
    :param again: takes another one, if it changes meanwhile
    :param minimum: hosts that are enough
    :param say: takes words for the user
    :param cancelled: set once the caller wants no more of it
    :return: what the hosts have now, and how many bytes of contents each of them was sent
    :raises AgentFailedError: not enough hosts could take it; it tells of each why
    :raises UsageError: it is too large, or changes all the time
    """
    if snapshot.left_out:
        say(f"sync: {snapshot.words()}")
    changed = ""
    for _ in range(TRIES):
        delivery = _Delivery(crew, snapshot, say, cancelled)
        try:
            delivery.run(minimum)
        except ChangedMeanwhile as error:
            changed, snapshot = str(error), again()
            continue
        return snapshot, delivery.sent
    raise UsageError(
        f"sync: {changed} in {snapshot.root} changes all the time, and cannot be sent. Stop what writes it, or put it "
        "into .latticeignore."
    )


class _Delivery:
    def __init__(self, crew: Crew, snapshot: Snapshot, say: Callable[[str], None], cancelled: threading.Event) -> None:
        self.sent: dict[str, int] = {}
        self._crew = crew
        self._snapshot = snapshot
        self._say = say
        self._cancelled = cancelled
        self._identity = snapshot.manifest.identity
        self._sizes = snapshot.manifest.contents
        self._waiting = [node for node in crew.nodes if node.host.transport != "local"]
        self._senders: list[threading.Thread] = []
        self._over = threading.Event()
        self._changed: ChangedMeanwhile | None = None
        self._serving: dict[str, Node] = {}
        """by store: who is being sent what is missing there"""
        self._behind: dict[str, list[Node]] = {}
        """and who looks again when that one has it"""
        self._filled: set[str] = set()
        """stores that somebody was sent something for"""
        self._looked: list[Node] = []
        self._problems: list[tuple[Node, str]] = []
        self._expected = 0
        self._moved = 0.0
        """when something went on last"""

    def run(self, minimum: int) -> None:
        manifest = self._snapshot.manifest.encode()
        for node in self._waiting:
            self._start(node, self._send_manifest, node, manifest)
        started = said = self._moved = time.monotonic()
        words = ""
        while self._waiting or self._busy():
            self._hear()
            if time.monotonic() > self._moved + self._crew.timeout:
                self._give_up()
            if (self._over.is_set() or self._cancelled.is_set()) and not self._busy():
                break
            if self._cancelled.is_set():
                self._over.set()
            now, before = time.monotonic(), words
            if self._expected and now > max(started + SILENT, said + INTERVAL * bool(before)):
                said = now
                words = f"sync: {shown(sum(self.sent.values()))} of {shown(self._expected)} sent {self._to()}"
                if words != before:
                    self._say(words)
        if self._changed is not None:
            raise self._changed
        if self._cancelled.is_set():
            raise InterruptedError("the launch was cancelled.")
        if words:
            took = time.monotonic() - started
            self._say(f"sync: {shown(sum(self.sent.values()))} sent {self._to()} in {took:.0f}s")
        self._judge(minimum)

    def _give_up(self) -> None:
        """Wait no longer for hosts on which nothing goes on: a disk that does not answer, as a rule."""
        for node in tuple(self._waiting):
            self._crew.lose(node)
            self._problems.append((node, f"nothing was heard of it for {self._crew.timeout:g}s (timeout)."))
            self._done(node)

    def _busy(self) -> bool:
        self._senders = [thread for thread in self._senders if thread.is_alive()]
        return bool(self._senders)

    def _to(self) -> str:
        return f"to {next(iter(self.sent))}" if len(self.sent) == 1 else f"to {len(self.sent)} hosts"

    def _hear(self) -> None:
        news = self._crew.news(LOOK)
        if isinstance(news, Told | Lost):
            self._moved = time.monotonic()
        match news:
            case Told(node=node, kind=Kind.WANTED, facts=facts) if facts["project"] == self._identity:
                self._serve(node, facts["store"], facts["missing"])
            case Told(node=node, kind=Kind.SYNCED, facts=facts) if facts["project"] == self._identity:
                if facts["problem"]:
                    self._problems.append((node, facts["problem"]))
                self._done(node)
            case Lost(node=node, reason=reason) if node in self._crew.nodes:
                self._crew.lose(node)
                self._problems.append((node, reason))
                self._done(node)
            case _:
                pass  # of an earlier run, or of another state of the project

    def _serve(self, node: Node, store: str, missing: Sequence[str]) -> None:
        if node not in self._waiting or self._over.is_set():
            return
        if store in self._filled and self._serving.get(store) is not node and node not in self._looked:
            # Once: stores may have the same name by accident, as those of cloned machines do.
            self._looked.append(node)
            if store in self._serving:
                self._behind.setdefault(store, []).append(node)
            else:  # somebody was done with it after this node had looked
                self._start(node, self._send_manifest, node, b"")
            return
        self._serving.setdefault(store, node)
        self._filled.add(store)
        self._expected += sum(self._sizes[digest] for digest in missing)
        self.sent.setdefault(node.host.given, 0)
        self._start(node, self._send_contents, node, missing)

    def _done(self, node: Node) -> None:
        if node in self._waiting:
            self._waiting.remove(node)
        for store in [store for store, served in self._serving.items() if served is node]:
            del self._serving[store]
            for other in self._behind.pop(store, []):
                self._start(other, self._send_manifest, other, b"")

    def _judge(self, minimum: int) -> None:
        failed = [node for node, _ in self._problems]
        left = [node for node in self._crew.nodes if node not in failed]
        if len(left) < minimum:
            told = [(node.host.given, reason) for node, reason in self._problems]
            raise no_agents(told, "the project cannot be sent to")
        for node, reason in self._problems:
            self._say(f"sync: going on without {node.host.given}: {reason}")
            if node in self._crew.nodes:
                self._crew.lose(node)

    def _start(self, node: Node, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, name=f"sync {node.host.given}", daemon=True)
        self._senders.append(thread)
        thread.start()

    def _send_manifest(self, node: Node, manifest: bytes) -> None:
        try:
            node.channel.send_all(Kind.MANIFEST, manifest)
            node.channel.send(Kind.MANIFEST)
        except BrokenChannelError:
            pass  # whoever listens to it tells

    def _send_contents(self, node: Node, missing: Sequence[str]) -> None:
        try:
            for digest in missing:
                name = bytes.fromhex(digest)
                for data in self._snapshot.read(digest, self._sizes[digest], CHUNK - len(name)):
                    if self._over.is_set() or self._cancelled.is_set() or node not in self._waiting:
                        return
                    node.channel.send(Kind.CONTENT, name + data)
                    self.sent[node.host.given] += len(data)
                    self._moved = time.monotonic()
        except BrokenChannelError:
            pass
        except ChangedMeanwhile as error:
            self._changed = error
            self._over.set()
