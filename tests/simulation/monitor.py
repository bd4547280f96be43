"""What must hold after every step of every agent, and once peace has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice.core.events import Finish
from lattice.core.keyspace import Batch, KeyValue, Removed, Transaction
from lattice.core.records import (
    FailureRecord,
    Keys,
    LeaderRecord,
    LostRecord,
    NodeRecord,
    OutcomeRecord,
    ReportRecord,
    RosterRecord,
    RoundRecord,
    RunRecord,
)
from lattice.core.topology import Assignment, RosterEntry
from tests.simulation.verdicts import check_haste, check_outcome, check_sealing, check_stopping

if TYPE_CHECKING:
    from tests.simulation.agent import SimulatedAgent
    from tests.simulation.cluster import Cluster


class BrokenPromiseError(AssertionError):
    """Something happened that must never happen."""


class Monitor:
    """Sees everything: what lies in the store, what workers really do, and what was done to whom."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.keys = Keys(cluster.run_id)
        self.mirror: dict[str, KeyValue] = {}
        self.life = 0
        """how often the store was emptied"""
        self.highest: dict[tuple[int, str], int] = {}
        self.rosters: dict[tuple[int, str, int], tuple[RosterEntry, ...]] = {}
        self.started_facts: dict[tuple[str, int], tuple[object, ...]] = {}
        self.started_ranks: dict[tuple[str, int], dict[int, str]] = {}
        self.last_started: dict[tuple[str, str], int] = {}
        self.starts: dict[str, int] = {}
        self.done_by: set[tuple[str, int, str]] = set()
        self.failures: dict[tuple[str, int], list[FailureRecord]] = {}
        self.vanished: set[str] = set()
        """incarnations whose node key went away, or said that they leave, since the current round was sealed"""
        self.dead: set[str] = set()
        """agents that crashed as members of the current round before they said that they had stopped"""
        self.acknowledged: set[str] = set()
        """who said that it stopped the current round"""
        self.outcomes: dict[str, list[OutcomeRecord]] = {}
        self.absences: list[tuple[float, float]] = []
        self.members_of: dict[str, set[str]] = {}
        """the runs that an agent registered with"""
        self.sealed: tuple[str, float] = "", 0.0
        """who sealed the current round, and when"""
        self.stopped: tuple[str, float] = "", 0.0
        """who stopped it, and when"""
        cluster.store.committed = self.committed
        cluster.store.reset = self._reset

    # -- the store -------------------------------------------------------------------------------------------------

    @property
    def run(self) -> RunRecord | None:
        item = self.mirror.get(self.keys.run)
        return RunRecord.decode(item.value) if item else None

    @property
    def round(self) -> RoundRecord | None:
        item = self.mirror.get(self.keys.round)
        return RoundRecord.decode(item.value) if item else None

    def node(self, incarnation: str) -> NodeRecord | None:
        item = self.mirror.get(self.keys.node(incarnation))
        return NodeRecord.decode(item.value) if item else None

    def reports(self, number: int) -> list[tuple[int, ReportRecord]]:
        prefix = self.keys.reports(number)
        found = [item for key, item in self.mirror.items() if key.startswith(prefix)]
        return [(item.create_revision, ReportRecord.decode(item.value)) for item in found]

    def lost(self, current: RoundRecord) -> frozenset[str]:
        item = self.mirror.get(self.keys.lost(current.number))
        later = () if item is None else LostRecord.decode(item.value).incarnations
        return frozenset(current.lost + later)

    def roster(self, number: int) -> tuple[RosterEntry, ...]:
        run = self.run
        return self.rosters.get((self.life, run.uuid if run else "", number), ())

    def _reset(self) -> None:
        self.life += 1
        self.mirror.clear()
        self.vanished.clear()
        self.dead.clear()
        self.acknowledged.clear()

    def store_away(self, lasts: float) -> None:
        self.absences.append((self.cluster.world.now, lasts))

    def committed(self, writer: str, transaction: Transaction | None, batch: Batch) -> None:
        """Look at a change before anybody hears of it."""
        changes = {change.key: change for change in batch.changes}
        for key in (self.keys.round, self.keys.outcome):
            change = changes.get(key)
            if isinstance(change, KeyValue):
                self._only_the_leader(writer, key)
        self._run_changed(writer, transaction, changes)
        written = changes.get(self.keys.round)
        if isinstance(written, KeyValue):
            self._round_written(writer, RoundRecord.decode(written.value), changes)
        ended = changes.get(self.keys.outcome)
        if isinstance(ended, KeyValue):
            outcome = OutcomeRecord.decode(ended.value)
            self.cluster.world.note("store", outcome)
            check_outcome(self, outcome)
            self.outcomes.setdefault(outcome.uuid, []).append(outcome)
            if len(self.outcomes[outcome.uuid]) > 1 + self.life:
                raise BrokenPromiseError(f"two outcomes of {outcome.uuid}")
        for key, change in changes.items():
            if key.startswith(self.keys.nodes):
                name = key.removeprefix(self.keys.nodes)
                record = None if isinstance(change, Removed) else NodeRecord.decode(change.value)
                if record is None or record.state == NodeRecord.LEAVING:
                    self.vanished.add(name)
                else:
                    self.members_of.setdefault(name, set()).add(record.uuid)
                current = self.round
                if record and current and record.state == NodeRecord.STOPPED and record.round >= current.number:
                    self.acknowledged.add(name)
                    self.dead.discard(name)  # it died when it had stopped, and its word was on the way
            if isinstance(change, Removed):
                self.mirror.pop(key, None)
                self.cluster.world.note(
                    "store", f"{key.removeprefix(self.keys.root)} gone"
                ) if not transaction else None
            else:
                self.mirror[key] = change
        if isinstance(written, KeyValue) or isinstance(ended, KeyValue):
            self.cluster.wrote_as_leader(writer)

    def _only_the_leader(self, writer: str, key: str) -> None:
        item = self.mirror.get(self.keys.leader)
        holder = LeaderRecord.decode(item.value).incarnation if item else "nobody"
        if holder != writer:
            raise BrokenPromiseError(f"{writer} wrote {key}, but {holder} leads")

    def _run_changed(
        self, writer: str, transaction: Transaction | None, changes: dict[str, KeyValue | Removed]
    ) -> None:
        change, old = changes.get(self.keys.run), self.run
        if isinstance(change, KeyValue):
            # Of a run that it began itself it may never have heard that it was begun.
            ended = {uuid for uuid in self.outcomes if not uuid.startswith(f"{writer}.")}
            known = self.members_of.get(writer, set()) & ended
            if known and not self.life:
                raise BrokenPromiseError(f"{writer} begins a run anew, but {known} had ended")
        elif change is not None and transaction is not None and self.keys.outcome not in changes and old is not None:
            for agent in self.cluster.agents:
                busy = agent.running and agent.session.connected and agent.workers.phase == "running"
                if busy and not agent.paused and not agent.cut and agent.state.uuid == old.uuid:
                    raise BrokenPromiseError(f"{writer} buries the run that {agent.name} is running")

    def conflicted(self, agent: SimulatedAgent, tag: str) -> None:
        """Look at a write whose guards did not hold: who still leads has nobody to be beaten by but itself."""
        item = self.mirror.get(self.keys.leader)
        leads = item is not None and LeaderRecord.decode(item.value).incarnation == agent.name
        if leads and tag in ("leader", "lead") and not self.cluster.plan.spike:
            raise BrokenPromiseError(f"{agent.name} is beaten by itself at {tag!r}")

    def _round_written(self, writer: str, new: RoundRecord, changes: dict[str, KeyValue | Removed]) -> None:
        self.cluster.world.note("store", new)
        run, old = self.run, self.round
        if run is None:
            raise BrokenPromiseError("a round without a run")
        prefix = self.keys.rosters(new.number)
        parts = [
            RosterRecord.decode(change.value).entries
            for key, change in {**self.mirror, **changes}.items()
            if key.startswith(prefix) and isinstance(change, KeyValue)
        ][: len(new.parts)]
        entries = tuple(sorted((entry for part in parts for entry in part), key=lambda entry: entry.group_rank))
        fresh = new.phase == RoundRecord.SEALED or old is None
        if fresh:
            highest = self.highest.get((self.life, run.uuid), 0)
            if new.number <= highest:
                raise BrokenPromiseError(f"round {new.number} after {highest}")
            self.highest[self.life, run.uuid] = new.number
            if new.phase == RoundRecord.SEALED:
                check_sealing(self, run, old, new, entries)
                check_haste(self, writer, old, new)
            # A round that is written anew into an emptied store is older than that; its leader does not know how old.
            self.sealed = ("", 0.0) if old is None and self.life else (writer, self.cluster.world.now)
            self.rosters[self.life, run.uuid, new.number] = entries
            # Who went while the round was being sealed is missed in it, even if it comes back before that is noticed.
            self.vanished = {entry.incarnation for entry in entries if self.node(entry.incarnation) is None}
            self.dead.clear()
            self.acknowledged.clear()
        else:
            assert old is not None
            check_stopping(self, run, old, new)
            if old.phase == RoundRecord.SEALED:
                self.stopped = writer, self.cluster.world.now

    # -- the agents ------------------------------------------------------------------------------------------------

    def started(self, agent: SimulatedAgent, uuid: str, assignment: Assignment) -> None:
        number, entry = assignment.round, assignment.entry
        run = self.run
        nodes = agent.policy.nodes
        if run is not None and run.uuid == uuid and (run.minimum, run.maximum) != (nodes.minimum, nodes.maximum):
            raise BrokenPromiseError(f"{agent.name} takes part in spite of another --nnodes")
        if agent.workers.phase != "idle":
            raise BrokenPromiseError(f"{agent.name} starts round {number} while its workers are {agent.workers.phase}")
        last = self.last_started.get((agent.name, uuid), 0)
        if number <= last:
            raise BrokenPromiseError(f"{agent.name} starts round {number} after round {last}")
        self.last_started[agent.name, uuid] = number
        self.starts[agent.name] = self.starts.get(agent.name, 0) + 1
        facts = (
            assignment.world,
            assignment.nodes,
            assignment.master_address,
            assignment.master_port,
            assignment.restarts,
        )
        known = self.started_facts.setdefault((uuid, number), facts)
        if known != facts:
            raise BrokenPromiseError(f"round {number}: {agent.name} believes {facts}, others {known}")
        ranks = self.started_ranks.setdefault((uuid, number), {})
        for rank in range(entry.rank_offset, entry.rank_offset + entry.workers):
            if ranks.setdefault(rank, agent.name) != agent.name or rank >= assignment.world:
                raise BrokenPromiseError(f"round {number}: rank {rank} of {agent.name} belongs to {ranks[rank]}")
        if assignment.members and tuple(member.group_rank for member in assignment.members) != tuple(
            range(assignment.nodes)
        ):
            raise BrokenPromiseError(f"round {number}: {agent.name} does not know all members")
        if entry.group_rank == 0 and (entry.address, entry.ports[0]) != facts[2:4]:
            raise BrokenPromiseError(f"round {number}: the master is not at rank 0")

    def done(self, agent: SimulatedAgent, uuid: str, number: int) -> None:
        self.done_by.add((uuid, number, agent.name))

    def failed(self, agent: SimulatedAgent, uuid: str, number: int, failure: FailureRecord) -> None:
        self.failures.setdefault((uuid, number), []).append(failure)

    def crashed(self, agent: SimulatedAgent) -> None:
        current, run = self.round, self.run
        if (
            current is None
            or run is None
            or agent.name not in {entry.incarnation for entry in self.roster(current.number)}
        ):
            return
        reported = (run.uuid, current.number, agent.name) in self.done_by
        if agent.name not in self.acknowledged and not reported:
            self.dead.add(agent.name)

    def leaves(self, agent: SimulatedAgent) -> None:
        self.cluster.world.note(agent.name, "GOODBYE")

    def finished(self, agent: SimulatedAgent, finish: Finish) -> None:
        """Everybody leaves for a good reason and with the right status."""
        if agent.workers.phase in ("running", "stopping"):
            raise BrokenPromiseError(f"{agent.name} leaves while its workers are {agent.workers.phase}")
        troubled = bool(agent.hurt or self.absences or self.cluster.plan.spike)
        match finish.event:
            case "run ended":
                outcome = finish.outcome
                if outcome is None or outcome not in self.outcomes.get(outcome.uuid, ()):
                    raise BrokenPromiseError(f"{agent.name} follows an outcome that nobody wrote")
                expected = outcome.cause.status if outcome.cause else 0 if outcome.succeeded else 1
                if finish.status != expected or (finish.status == 0) != outcome.succeeded:
                    raise BrokenPromiseError(f"{agent.name} ends with {finish.status} for {outcome}")
            case "left" if agent.left and finish.status == 128 + 15:
                pass
            case "contradiction" if finish.status == 2:
                if agent.policy.nodes == self.cluster.plan.policy.nodes and not any(
                    other.policy.nodes != agent.policy.nodes for other in self.cluster.agents
                ):
                    raise BrokenPromiseError(f"{agent.name} is told of a contradiction that isn't there")
            case "store lost" | "run gone" if troubled and finish.status == 1:
                pass
            case _:
                raise BrokenPromiseError(f"{agent.name} leaves: {finish}")

    # -- peace -----------------------------------------------------------------------------------------------------

    def at_peace(self) -> None:
        """Nobody is stuck."""
        cluster = self.cluster
        running = [agent for agent in cluster.agents if agent.running]
        if cluster.plan.calm:
            for agent in cluster.agents:
                if self.starts.get(agent.name) != 1 or agent.finish is None or agent.finish.status != 0:
                    raise BrokenPromiseError(
                        f"{agent.name}: {self.starts.get(agent.name)} starts, ends with {agent.finish}"
                    )
        if not running:
            return
        if not cluster.plan.forever:
            raise BrokenPromiseError(f"{', '.join(agent.name for agent in running)} never came to an end")
        current, run = self.round, self.run
        if current is None or run is None or current.phase != RoundRecord.SEALED:
            raise BrokenPromiseError(f"no round in the end: {current}")
        members = {entry.incarnation for entry in self.roster(current.number)}
        expected = min(len(running), run.maximum)
        working = {
            agent.name
            for agent in running
            if agent.workers.phase == "running"
            and agent.workers.assignment is not None
            and agent.workers.assignment.round == current.number
        }
        if len(members) != expected or members != working:
            names = [agent.name for agent in running]
            raise BrokenPromiseError(
                f"round {current.number} has {members}, {working} work, of {names}, at most {run.maximum}"
            )
