"""Play a scene with real protocol states on a store without delay, and write down what everybody says and does."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

from lattice.core import rendezvous
from lattice.core.events import (
    Changed,
    Connected,
    Disconnected,
    Event,
    Finish,
    GoodbyeAsked,
    KeepAlive,
    Note,
    ReadRoster,
    ReadView,
    Revoke,
    RosterRead,
    StartWorkers,
    StopWorkers,
    Ticked,
    Viewed,
    WorkersDone,
    WorkersFailed,
    WorkersStopped,
    Write,
    Written,
)
from lattice.core.keyspace import Batch, Put, Transaction
from lattice.core.keyvalue import KeyValueMachine, below
from lattice.core.member import greet
from lattice.core.records import FailureRecord, Keys, LostRecord, NodeRecord, OutcomeRecord, RosterRecord, RoundRecord
from lattice.core.spec import NodeRange, Policy
from lattice.core.state import Identity, State
from lattice.core.topology import Assignment


@dataclass
class Actor:
    """One agent on the stage."""

    name: str
    state: State
    lease: int = 0
    kept: int = 0
    prefix: str = ""
    connected: bool = False
    gone: bool = False
    assignment: Assignment | None = None
    inbox: deque[Event] = field(default_factory=deque)


class Story:
    """Commands in, lines out; see the transcripts for what they look like."""

    def __init__(self) -> None:
        self.now = 0.0
        self.policy = Policy(NodeRange(1, 1))
        self.machine = KeyValueMachine()
        self.keys = Keys("job")
        self.cast: dict[str, Actor] = {}
        self.lines: list[str] = []
        self.away = False
        self.emptied = False
        self.held: set[str] = set()
        """whose workers take their time to stop"""
        self._ports = 100

    def play(self, command: str) -> list[str]:
        """
        Do one thing and let everybody react.

        :return: what was said and done, one line each
        """
        verb, *words = command.split()
        names = [word for word in words if "=" not in word]
        facts = dict(word.split("=", 1) for word in words if "=" in word)
        self.lines = []
        getattr(self, f"do_{verb}")(*names, **facts)
        self._settle()
        return self.lines

    # -- commands --------------------------------------------------------------------------------------------------

    def do_policy(self, **facts: str) -> None:
        changes: dict[str, Any] = {name: float(value) for name, value in facts.items() if name != "nodes"}
        if "max_restarts" in changes:
            changes["max_restarts"] = int(changes["max_restarts"])
        self.policy = replace(self.policy, nodes=self._nodes(facts), **changes)

    def do_join(self, *names: str, workers: str = "1", rank: str = "", **facts: str) -> None:
        for name in names:
            wish = int(rank) if rank else None
            me = Identity("job", name, f"host-{name}", name, int(workers), rank=wish)
            policy = replace(self.policy, nodes=self._nodes(facts))
            self.cast[name] = Actor(name, rendezvous.begin(me, policy, self._fresh(), self.now))
            self._connect(self.cast[name])
            self._settle()

    def do_wait(self, seconds: str) -> None:
        target = self.now + float(seconds)
        while True:
            self._beat()
            moments = [moment for actor in self._living() if (moment := rendezvous.deadline(actor.state)) is not None]
            if not self.away and (due := self.machine.next_expiry()) is not None:
                moments.append(due)
            self.now = min([moment for moment in moments if moment > self.now] + [self.now + 1.0, target])
            if not self.away:
                for batch in self.machine.expire(self.now):
                    self._publish(batch)
            for actor in self._living():
                actor.inbox.append(Ticked(self.now))
            self._settle()
            if self.now >= target:
                return

    def do_done(self, *names: str) -> None:
        for name in names:
            self.cast[name].inbox.append(WorkersDone(self.now))

    def do_fail(self, name: str, code: str = "1", signal: str = "0", kind: str = "worker") -> None:
        actor = self.cast[name]
        assert actor.assignment is not None
        rank = actor.assignment.entry.rank_offset
        exit_code = 0 if signal != "0" else int(code)
        failure = FailureRecord(rank, 0, f"host-{name}", 1, exit_code, int(signal), kind=kind)
        actor.inbox.append(WorkersFailed(self.now, failure))
        if name not in self.held:
            actor.inbox.append(WorkersStopped(self.now, self._fresh()))

    def do_hold(self, name: str) -> None:
        self.held.add(name)

    def do_release(self, name: str) -> None:
        self.held.discard(name)
        self.cast[name].inbox.append(WorkersStopped(self.now, self._fresh()))

    def do_crash(self, *names: str) -> None:
        for name in names:
            self.cast[name].gone = True

    def do_leave(self, name: str, signal: str = "15") -> None:
        self.cast[name].inbox.append(GoodbyeAsked(self.now, int(signal)))

    def do_cut(self, *names: str) -> None:
        for name in names:
            actor = self.cast[name]
            actor.connected = False
            actor.inbox.append(Disconnected(self.now, "the store does not answer"))

    def do_heal(self, *names: str) -> None:
        for name in names:
            self._connect(self.cast[name])
            self._settle()

    def do_overtake(self, name: str) -> None:
        """Have a record of this node arrive that says that it runs, sent before what it said last."""
        key = self.keys.node(name)
        record = NodeRecord.decode(self.machine.read(key).items[0].value)
        stale = replace(record, state=NodeRecord.RUNNING)
        self._publish(self.machine.commit(Transaction((Put(key, stale.encode(), self.cast[name].lease),)), self.now)[1])

    def do_away(self) -> None:
        self.away = True
        self.do_cut(*[actor.name for actor in self._living()])

    def do_back(self) -> None:
        self.away = False
        self.do_heal(*[actor.name for actor in self._living()])

    def do_empty(self) -> None:
        self.machine, self.emptied = KeyValueMachine(), True

    # -- the stage -------------------------------------------------------------------------------------------------

    def _nodes(self, facts: dict[str, str]) -> NodeRange:
        if "nodes" not in facts:
            return self.policy.nodes
        low, _, high = facts["nodes"].partition(":")
        return NodeRange(int(low), int(high or low))

    def _fresh(self) -> tuple[int, ...]:
        self._ports += 1
        return (self._ports,)

    def _living(self) -> list[Actor]:
        return [actor for actor in self.cast.values() if not actor.gone]

    def _beat(self) -> None:
        for actor in self._living():
            if actor.connected:
                self.machine.keep_alive(actor.lease, self.now)
                self.machine.keep_alive(actor.kept, self.now)

    def _connect(self, actor: Actor) -> None:
        if not self.machine.keep_alive(actor.lease, self.now):
            self._ports += 1
            actor.lease = self.machine.grant(self.policy.lease_ttl, self.now, self._ports)
        actor.connected, actor.prefix = True, self.keys.control
        if not actor.state.met:
            state = actor.state
            record, greeting = greet(state.me, state.policy, state.ports, actor.lease)
            found, batch = self.machine.commit(greeting, self.now)
            self._publish(batch)
            said = record if found.succeeded else None
            actor.inbox.append(Connected(self.now, actor.lease, found.items, found.revision, greeting=said))
            return
        snapshot = self.machine.read(actor.prefix, prefix=True)
        actor.inbox.append(Connected(self.now, actor.lease, snapshot.items, snapshot.revision, self.emptied))

    def _publish(self, batch: Batch | None) -> None:
        if batch is None:
            return
        for change in batch.changes:
            if change.key == self.keys.round and hasattr(change, "value"):
                record = RoundRecord.decode(change.value)
                lost = f", lost {' '.join(record.lost)}" if record.lost else ""
                self._say(
                    "store",
                    f"round {record.number} {record.phase}, {record.nodes} nodes, "
                    f"{record.restarts} restarts{lost} ({record.reason})",
                )
            elif change.key.startswith(self.keys.lost()) and hasattr(change, "value"):
                number, later = change.key.removeprefix(self.keys.lost()), LostRecord.decode(change.value)
                self._say("store", f"round {number}, for leaders only: lost {' '.join(later.incarnations)}")
            elif change.key == self.keys.outcome and hasattr(change, "value"):
                outcome = OutcomeRecord.decode(change.value)
                result = "succeeded" if outcome.succeeded else f"failed with {outcome.status}"
                self._say("store", f"outcome: {result} ({outcome.reason})")
        for actor in self._living():
            part = below(batch, actor.prefix)
            if actor.connected and part is not None:
                actor.inbox.append(Changed(self.now, part))

    def _say(self, who: str, what: str) -> None:
        self.lines.append(f"{self.now:g} {who}: {what}")

    def _settle(self) -> None:
        while any(actor.inbox for actor in self._living()):
            for actor in self._living():
                if actor.inbox:
                    event = actor.inbox.popleft()
                    actor.state, effects = rendezvous.step(actor.state, event)
                    for effect in effects:
                        self._perform(actor, effect)

    def _perform(self, actor: Actor, effect: Any) -> None:
        match effect:
            case Note(text=text):
                if text:
                    self._say(actor.name, text)
            case StartWorkers(assignment=assignment):
                actor.assignment = assignment
                first, count = assignment.entry.rank_offset, assignment.entry.workers
                ranks = ",".join(str(rank) for rank in range(first, first + count))
                where = f"{assignment.master_address}:{assignment.master_port}"
                self._say(actor.name, f"START round {assignment.round}: ranks {ranks} of {assignment.world} at {where}")
            case StopWorkers():
                self._say(actor.name, "STOP")
                if actor.name not in self.held:
                    actor.inbox.append(WorkersStopped(self.now, self._fresh()))
            case Finish(status=status, message=message, event=event, late=late):
                self._say(
                    actor.name, f"EXIT {status} {event}{' (late)' if late else ''}{': ' if message else ''}{message}"
                )
                actor.gone = True
                if actor.connected:
                    self._publish(self.machine.revoke(actor.lease))
            case Write() | ReadView() | ReadRoster() | KeepAlive() | Revoke():
                if actor.connected:
                    self._ask(actor, effect)

    def _ask(self, actor: Actor, effect: Any) -> None:
        match effect:
            case Write(tag=tag, transactions=transactions, grants=grants):
                for lease, ttl in grants:
                    self.machine.grant(ttl, self.now, lease)
                for transaction in transactions:
                    commit, batch = self.machine.commit(transaction, self.now)
                    self._publish(batch)
                    if not commit.succeeded:
                        break
                actor.inbox.append(Written(self.now, tag, commit.succeeded, commit.revision))
            case ReadView(whole=whole):
                actor.prefix = self.keys.root if whole else self.keys.control
                snapshot = self.machine.read(actor.prefix, prefix=True)
                actor.inbox.append(Viewed(self.now, whole, snapshot.items, snapshot.revision))
            case ReadRoster(number=number, key=key, whole=whole):
                items = self.machine.read(key, prefix=whole).items
                entries = tuple(entry for item in items for entry in RosterRecord.decode(item.value).entries)
                actor.inbox.append(RosterRead(self.now, number, entries))
            case KeepAlive(lease=lease):
                actor.kept = lease
            case Revoke(lease=lease):
                self._publish(self.machine.revoke(lease))
