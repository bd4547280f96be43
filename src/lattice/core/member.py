"""What an agent does for its own node: register, follow the round, report, leave. One rule per function."""

from __future__ import annotations

from collections.abc import Iterator

from lattice.core import electing, publishing
from lattice.core.dataclass import replace
from lattice.core.events import Finish, Note, ReadRoster, Revoke, StartWorkers, StopWorkers
from lattice.core.keyspace import CreatedAt, Put, Transaction
from lattice.core.records import LeaderRecord, NodeRecord, RoundRecord, RunRecord, any_run
from lattice.core.spec import NodeRange, Policy
from lattice.core.state import Identity, Move, Place, State, View, Workers, lease_of, write
from lattice.core.supervision import NOTICE
from lattice.core.topology import Assignment, RosterEntry


def grace(state: State) -> float:
    """
    Tell how long to go on without the store.

    Not less than most of a lease: a shorter break is noticed by nobody, so stopping for it would gain nothing.
    """
    return max(state.policy.store_grace, state.policy.lease_ttl * 0.8)


def moments(state: State) -> Iterator[float]:
    """Give the moments at which a rule here may begin to apply."""
    if state.lease is None:
        since = state.now if state.since is None else state.since
        yield since + grace(state) if state.met else state.started + state.policy.connect_timeout
    if state.found_dead is not None:
        yield state.found_dead + state.policy.lease_ttl
    yield from electing.moments(state)
    if state.claiming:
        yield state.sent_at + state.policy.lease_ttl


def _stop(state: State, reason: str, manner: str = "") -> Move:
    return replace(state, workers=Workers.STOPPING, manner=manner), (StopWorkers(reason, manner),)


def end(state: State) -> Move | None:
    """Leave once it is decided and no worker is left; nothing else is done then."""
    if state.ending is None:
        return None
    if state.workers in (Workers.RUNNING, Workers.DONE) or (
        state.workers is Workers.STOPPING and state.manner == NOTICE
    ):
        return _stop(state, state.ending.message or "the run has ended")
    if state.workers is Workers.IDLE:
        return replace(state, finished=True), (state.ending,)
    return None


def follow_outcome(state: State) -> Move | None:
    """The run has ended."""
    seen = state.view.outcome
    if seen is None or state.lease is None or state.ending is not None or state.leaving is not None:
        return None
    outcome = seen.record
    late = state.uuid != outcome.uuid
    return replace(state, ending=Finish(outcome.status, outcome=outcome, late=late, event="run ended")), ()


def give_up(state: State) -> Move | None:
    """The store has been out of reach for too long."""
    if state.lease is not None or state.ending is not None or state.since is None:
        return None
    if state.met and state.now >= state.since + grace(state):
        limit = f"for {grace(state):g}s. Bring it back, or raise --rdzv_conf store_grace=SECONDS (LATTICE_RDZV_CONF)"
    elif not state.met and state.now >= state.started + state.policy.connect_timeout:
        remedy = (
            "start one with `lattice etcd`" if state.trouble.startswith("etcd") else "start the node that serves it"
        )
        limit = f"for {state.policy.connect_timeout:g}s. Check --rdzv_endpoint (LATTICE_RDZV_ENDPOINT), or {remedy}"
    else:
        return None
    return replace(state, ending=Finish(1, f"{state.trouble}, {limit}.", event="store lost")), ()


def say_goodbye(state: State) -> Move | None:
    """Told to leave: stop the workers; once they are gone, go. Revoking the lease tells the others."""
    if state.leaving is None or state.ending is not None:
        return None
    if state.workers in (Workers.RUNNING, Workers.DONE):
        return _stop(state, state.asked or f"signal {state.leaving}", NOTICE)
    if state.workers is Workers.STOPPING or "node" in state.pending:
        return None
    run = state.view.run
    alone = state.leads and state.view.whole and state.settled and set(state.view.nodes) <= {state.me.incarnation}
    revoke = (Revoke(run.record.lease),) if run is not None and alone else ()
    return replace(state, ending=Finish(128 + state.leaving, event="left")), revoke


def make_run(state: State) -> Move | None:
    """There is no run of this id: begin one, and lead it, after those whose turn is earlier."""
    if state.lease is None or state.ending or state.leaving or state.pending & {"run", "view"}:
        return None
    if state.view.run is not None or state.view.outcome is not None or not state.caught_up:
        return None
    if (state.round is not None or state.joined not in (None, state.since)) and not state.emptied:
        gone = (
            f"run {state.me.run_id!r} ended, or its records were removed, while this node was cut off; "
            "its outcome is no longer known here. Look at the other nodes' logs."
        )
        return replace(state, ending=Finish(1, gone, event="run gone")), ()
    if electing.waits(state):
        return None
    refill = state.emptied and bool(state.uuid)
    made = state.made if refill else state.made + 1
    uuid = state.uuid if refill else f"{state.me.incarnation}.{made}"
    state = replace(state if refill else _newcomer(state), uuid=uuid, made=made)
    nodes, lease = state.policy.nodes, lease_of(state.uuid, "run")
    # The records outlive any break that the workers outlive.
    ttl = max(state.policy.run_ttl, 2 * grace(state))
    run = RunRecord(state.uuid, nodes.minimum, nodes.maximum, state.policy.max_restarts, lease, refill)
    node, mine = node_record(state), state.lease or 0
    puts = [Put(state.keys.run, run.encode(), lease), Put(state.keys.node(state.me.incarnation), node.encode(), mine)]
    guards = [CreatedAt(state.keys.run, 0)]
    if state.view.leader is None:  # in the same moment, so that a run without a leader is one whose leader is gone
        puts.append(Put(state.keys.leader, LeaderRecord(state.me.incarnation).encode(), mine))
        guards.append(CreatedAt(state.keys.leader, 0))
    state, effects = write(
        replace(state, sent=node, sent_at=state.now, tried=state.view.revision),
        "run",
        Transaction(tuple(puts), tuple(guards)),
        grants=((lease, ttl),),
    )
    text = f"run {state.me.run_id!r}: the store was emptied, writing the run anew" if refill else joining(state)
    return state, (*effects, Note("refilling run" if refill else "beginning run", text, {"uuid": state.uuid}))


def _newcomer(state: State) -> State:
    """Forget what belonged to another run."""
    state = replace(state, round=None, entry=None, passed=0, place=None, reading="", report=None, report_sent=False)
    return replace(state, sent=None, claiming=False, emptied=False, joined=None, found_dead=None, told="", leading=None)


def joining(state: State) -> str:
    """Say that this node joins."""
    workers = "1 worker" if state.me.workers == 1 else f"{state.me.workers} workers"
    wanted = f" of {state.policy.nodes} nodes" if state.policy.nodes.maximum > 1 else ""
    return f"joining run {state.me.run_id!r}{wanted} as {state.me.host} with {workers}"


def adopt_run(state: State) -> Move | None:
    """There is a run: take part in it, if it is the run that this node was told of."""
    run = state.view.run
    if state.lease is None or state.ending or state.leaving or run is None or state.pending & {"run", "view"}:
        return None
    if run.record.uuid != state.uuid:
        if state.workers in (Workers.RUNNING, Workers.DONE):
            return _stop(state, "the run was begun anew without this node")
        if state.workers is Workers.STOPPING:
            return None
        dead = state.now if state.view.leader is None else None
        fresh = replace(_newcomer(state), uuid=run.record.uuid, found_dead=dead)
        if not state.uuid:
            fresh = replace(fresh, sent=state.sent)  # if anything was: a greeting, written when this run was seen
        beaten = state.uuid.startswith(state.me.incarnation)  # to beginning this run: it has said that it joins
        return fresh, (Note("joining", "" if beaten else joining(state), {"uuid": run.record.uuid}),)
    if state.found_dead is not None:
        if state.view.leader is None:
            return None
        return replace(state, found_dead=None), ()
    if (run.record.minimum, run.record.maximum) != (state.policy.nodes.minimum, state.policy.nodes.maximum):
        theirs = NodeRange(run.record.minimum, run.record.maximum)
        text = (
            f"run {state.me.run_id!r} was begun with --nnodes {theirs} and this node says {state.policy.nodes}. "
            "Give every node the same --nnodes (LATTICE_NNODES), or another --rdzv_id (LATTICE_RDZV_ID)."
        )
        return replace(state, ending=Finish(2, text, event="contradiction")), ()
    if state.emptied or state.joined != state.since:
        return replace(state, emptied=False, joined=state.since), ()
    return None


def bury_run(state: State) -> Move | None:
    """A run without a living node: its members get one lease to come back; then the next is begun in its place."""
    run = state.view.run
    if state.lease is None or state.ending or state.leaving or run is None or state.found_dead is None:
        return None
    if state.now < state.found_dead + state.policy.lease_ttl or state.view.leader is not None:
        return None
    if state.pending & {"run", "view"} or not state.caught_up:
        return None
    text = f"run {state.me.run_id!r} of earlier agents has no living node: beginning anew"
    state, effects = publishing.clear(state)
    return state, (*effects, Note("run cleared", text, {"was": state.uuid}))


def node_record(state: State) -> NodeRecord:
    """Tell what this node should say of itself now."""
    me, current = state.me, state.round
    number = max(current.number if current else 0, state.passed)
    if state.leaving is not None:
        condition = NodeRecord.LEAVING
    elif state.workers is not Workers.IDLE:
        condition = NodeRecord.RUNNING
    else:
        condition = NodeRecord.STOPPED if number else NodeRecord.READY
    claims = state.claiming and current is not None
    return NodeRecord(
        state.uuid,
        me.host,
        me.address,
        state.ports,
        me.workers,
        me.rank,
        condition,
        number,
        claim=current if claims else None,
        entry=state.entry if claims else None,
    )


def greet(me: Identity, policy: Policy, ports: tuple[int, ...], lease: int) -> tuple[NodeRecord, Transaction]:
    """
    Make what an agent sends first, when it does not know yet which run there is: its record, and a look at the run.

    If somebody leads a run with the same bounds this node has joined it, and need not say so again.

    :param lease: what the record is bound to
    :return: the record, and the transaction that writes it unless this node has one already
    """
    key = me.keys.node(me.incarnation)
    record = node_record(State(me, policy, 0.0, View(me.keys), ports, uuid=any_run(policy.nodes)))
    return record, Transaction((Put(key, record.encode(), lease),), (CreatedAt(key, 0),), read=me.keys.control)


def register(state: State) -> Move | None:
    """Tell the others about this node. That it runs what the roster says goes without saying."""
    run = state.view.run
    if state.lease is None or state.ending or run is None or run.record.uuid != state.uuid:
        return None
    if state.pending & {"node", "run", "view"} or state.found_dead is not None:
        return None
    sent, leader = state.sent, state.view.leader
    runs = state.workers is not Workers.IDLE and state.leaving is None
    if runs and not state.claiming and sent is not None and sent.state != NodeRecord.RUNNING:
        return None
    record = node_record(state)
    if sent is not None and sent.uuid == any_run(state.policy.nodes) and leader is not None and leader.record.greeted:
        sent = replace(sent, uuid=state.uuid)
    # What an earlier session sent may arrive late and undo what this one said: a leader that waits is told again.
    again = state.claiming and record.state == NodeRecord.STOPPED and _ends(state, record.round)
    if record == sent and not (again and state.now >= state.sent_at + state.policy.lease_ttl):
        return None
    put = Put(state.keys.node(state.me.incarnation), record.encode(), state.lease)
    state = replace(state, sent=record, sent_at=state.now)
    return write(state, "node", Transaction((put,), (CreatedAt(state.keys.run, run.created),)))


def _ends(state: State, number: int) -> bool:
    seen = state.view.round
    return seen is not None and seen.record.phase == RoundRecord.STOPPING and seen.record.number == number


def tell_result(state: State) -> Move | None:
    """Report how the round went here; once, whatever became of the first try."""
    run = state.view.run
    if state.lease is None or state.ending or run is None or run.record.uuid != state.uuid:
        return None
    if state.report is None or state.report_sent or state.round is None or state.pending & {"report", "view"}:
        return None
    key = state.keys.report(state.round.number, state.me.incarnation)
    if (state.round.number, state.me.incarnation) in state.view.reports:
        return replace(state, report_sent=True), ()
    put = Put(key, state.report.encode(), run.record.lease)
    # No guard on the key: writing the same report again changes nothing that matters, its first revision counts.
    guards = (CreatedAt(state.keys.run, run.created),)
    return write(replace(state, report_sent=True), "report", Transaction((put,), guards))


def follow_round(state: State) -> Move | None:
    """Stop when the round ends or goes on without this node; find this node's place in a new one; start."""
    seen, run = state.view.round, state.view.run
    if state.lease is None or state.ending or state.leaving or seen is None or run is None:
        return None
    if run.record.uuid != state.uuid or "view" in state.pending or state.found_dead is not None:
        return None
    current, mine = seen.record, state.round.number if state.round else 0
    stopping = current.phase == RoundRecord.STOPPING
    # A lower number: the store was emptied, and others went on from what they knew before this node was back.
    if state.workers in (Workers.RUNNING, Workers.DONE) and (stopping or current.number != mine):
        reason = current.reason if stopping else f"round {current.number} was formed without this node"
        state, effects = _stop(state, reason, current.manner if stopping else "")
        return state, (Note("round left", f"stopping the workers: {reason}", {"round": mine}), *effects)
    if state.workers is Workers.STOPPING and state.manner == NOTICE and (not stopping or current.manner != NOTICE):
        return _stop(state, current.reason)
    if state.workers is not Workers.IDLE or current.number <= max(mine, state.passed):
        return None
    if stopping:
        # The leader may be waiting for this node, which did not get to start its workers.
        return replace(state, passed=current.number), ()
    if state.place is None or state.place.number != current.number:
        if "roster" in state.pending:
            return None
        if (entry := _known(state, current)) is not None:
            return replace(state, place=Place(current.number, entry)), ()
        whole, part = state.me.whole_roster, current.part_of(state.me.incarnation)
        key = state.keys.rosters(current.number) if whole else state.keys.roster(current.number, part)
        asked = replace(state, pending=state.pending | {"roster"}, reading=state.uuid)
        return asked, (ReadRoster(current.number, key, whole),)
    if state.place.entry is None:
        return _wait_as_spare(state, current)
    return _start(state, current, run.record)


def _known(state: State, current: RoundRecord) -> RosterEntry | None:
    """Give this node's place if the round itself tells it, so that it need not be read."""
    entry = _kept(state, current) or _arrived(state, current)
    if entry is None or entry.group_rank == 0 or state.me.whole_roster:
        return None  # the port of rank 0 is the master's: all must mean the same
    return entry


def _kept(state: State, current: RoundRecord) -> RosterEntry | None:
    """Give the place that this node had in the round before, if it is the same."""
    mine, entry = state.round, state.entry
    if mine is None or entry is None or not current.follows or mine.number != current.follows:
        return None
    return None if entry.group_rank in current.moved else replace(entry, ports=state.ports)


def _arrived(state: State, current: RoundRecord) -> RosterEntry | None:
    """Give the place of whoever came when this node did."""
    me = state.me
    for revision, first, count in current.arrivals:
        if revision <= state.came < revision + count:
            rank = first + state.came - revision
            return RosterEntry(me.incarnation, rank, rank * me.workers, me.workers, me.host, me.address, state.ports)
    return None


def _wait_as_spare(state: State, current: RoundRecord) -> Move | None:
    full = current.nodes >= state.policy.nodes.maximum
    if full:
        text = f"round {current.number} is full with {current.nodes} nodes: a spare, stepping in when one is lost"
    else:
        text = f"round {current.number} runs with {current.nodes} nodes: waiting to be let in"
    if state.told == text:
        return None
    return replace(state, told=text), (Note("spare" if full else "waiting", text, {"round": current.number}),)


def _start(state: State, current: RoundRecord, run: RunRecord) -> Move:
    assert state.place is not None and state.place.entry is not None
    entry = state.place.entry
    assignment = Assignment(
        run_id=state.me.run_id,
        round=current.number,
        restarts=current.restarts,
        max_restarts=run.max_restarts,
        role=state.me.role,
        entry=entry,
        nodes=current.nodes,
        world=current.world,
        master_address=current.master_address,
        master_port=current.master_port,
        members=state.place.members,
    )
    started = replace(
        state,
        workers=Workers.RUNNING,
        round=current,
        entry=entry,
        report=None,
        report_sent=False,
        told="",
    )
    last = entry.rank_offset + entry.workers - 1
    ranks = f"rank {last}" if entry.workers == 1 else f"ranks {entry.rank_offset}-{last}"
    why = "" if current.number == 1 else f" after {current.reason}"
    text = (
        f"round {current.number} starts{why}: node {entry.group_rank} of {current.nodes}, {ranks} of {current.world}, "
        f"master {current.master_address}:{current.master_port}"
    )
    facts: dict[str, int | str] = {
        "round": current.number,
        "restarts": current.restarts,
        "group_rank": entry.group_rank,
        "nodes": current.nodes,
    }
    facts |= {"world": current.world, "reason": current.reason}
    start = StartWorkers(assignment, current.kind, current.reason)
    return started, (Note("round started", text, facts), start)


RULES = (
    end,
    follow_outcome,
    give_up,
    say_goodbye,
    make_run,
    adopt_run,
    bury_run,
    tell_result,  # before the record that says that the workers are stopped: whoever sees that has seen why
    register,
    *electing.RULES,
    follow_round,
)
