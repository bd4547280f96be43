"""What the leader decides from what it sees: who takes part, when a round ends, and why, and how the run ends."""

from __future__ import annotations

from collections.abc import Iterator, Set

from lattice.core import publishing
from lattice.core.dataclass import replace
from lattice.core.events import Note
from lattice.core.incident import judge, listed
from lattice.core.records import NodeRecord, OutcomeRecord, ReportRecord, RoundRecord, any_run
from lattice.core.state import Leading, Move, Seen, State, View
from lattice.core.supervision import NOTICE, STACKS
from lattice.core.topology import Candidate, RosterEntry, arrivals, assign, borders, choose, moved, parts

SHORT = 10.0
"""a round that lasted less makes the next one wait, unless a plain worker failure ended it"""
LONGEST_WAIT = 60.0
FINDING = 3
"""leases that the members of a round have to find a store that was emptied"""
UNHEARD = 1000
"""round numbers left out after a store was emptied and not all came back: they may run rounds nobody here heard of"""
UNKNOWN = "unknown"
"""stands for members that nobody here can name"""


def watched(state: State, before: View) -> State:
    """Note that nodes came since the view was another: the last call begins anew."""
    nodes = state.view.nodes
    if state.leading is None or nodes is before.nodes:
        return state
    if not any(_belongs(state, nodes[name]) for name in nodes.keys() - before.nodes.keys()):
        return state
    return replace(state, leading=replace(state.leading, joined_at=state.now))


def moments(state: State) -> Iterator[float]:
    """Give the moments at which the rule here may begin to apply."""
    leading, policy = state.leading, state.policy
    if leading is None:
        return
    if state.since is not None:
        yield state.since + policy.lease_ttl
        yield _given_up(state)
    yield leading.joined_at + policy.last_call
    if leading.waiting_since is not None:
        yield leading.waiting_since + policy.join_timeout
    if leading.grew_at is not None:
        yield leading.grew_at + policy.grow_interval
    yield _not_before(leading)


def lead(state: State) -> Move | None:
    """Decide, if this agent leads and has seen all that it wrote itself."""
    if not state.leads or not state.view.whole or state.ending or state.pending & {"lead", "view", "run"}:
        return None
    run = state.view.run
    if run is None or run.record.uuid != state.uuid or state.view.outcome is not None:
        return None
    if not state.caught_up:
        return None
    if state.leading is None:
        return replace(state, leading=Leading(joined_at=state.now)), ()
    seen = state.view.round
    if seen is None:
        return _form_first(state)
    if state.leading.number != seen.record.number:
        fresh = replace(state.leading, number=seen.record.number, roster=(), sealed_at=None, ended_at=None)
        return replace(state, leading=replace(fresh, waiting_since=None, patient=False)), ()
    roster = state.leading.roster or _roster(state, seen.record)
    if roster is None:
        return None
    if not state.leading.roster:
        return replace(state, leading=replace(state.leading, roster=roster)), ()
    if seen.record.phase == RoundRecord.SEALED:
        return _watch_over(state, seen, roster)
    return _conclude(state, seen, roster)


def _roster(state: State, current: RoundRecord) -> tuple[RosterEntry, ...] | None:
    found = [state.view.rosters.get((current.number, part)) for part in range(len(current.parts))]
    if any(part is None for part in found):
        return None
    entries = [entry for part in found if part is not None for entry in part.entries]
    return tuple(sorted(entries, key=lambda entry: entry.group_rank))


def _nodes(state: State) -> dict[str, Seen[NodeRecord]]:
    return {name: seen for name, seen in state.view.nodes.items() if _belongs(state, seen)}


def _belongs(state: State, seen: Seen[NodeRecord]) -> bool:
    """Tell whether a node takes part in this run: it says so, or it came to what was there and that is this run."""
    if seen.record.uuid == state.uuid:
        return True
    run = state.view.run
    return run is not None and seen.modified > run.created and seen.record.uuid == any_run(state.policy.nodes)


# -- the first round -----------------------------------------------------------------------------------------------


def _next_number(state: State, last: int, unheard: bool) -> int:
    """Give a number above every round that any node here ever took part in."""
    rounds = [seen.record.round for seen in _nodes(state).values()]
    return max([last, *rounds]) + 1 + (UNHEARD if unheard else 0)


def _form_first(state: State) -> Move | None:
    run = state.view.run
    assert run is not None
    nodes = _nodes(state)
    claims = [seen.record.claim for seen in nodes.values() if seen.record.claim is not None]
    if claims:
        return _refill(state, max(claims, key=lambda claim: claim.number))
    if run.record.refill and not state.settled:
        return None
    here = [(name, seen) for name, seen in nodes.items() if _available(seen.record)]
    if len(here) < state.policy.nodes.minimum and state.leading is not None:
        since = state.leading.waiting_since
        if since is not None and state.now < since + state.policy.join_timeout:
            return None
    ready = [_candidate(name, seen) for name, seen in here]
    number = _next_number(state, 0, run.record.refill)
    return _form(state, ready, number=number, restarts=0, reason="first round", rebinds=0)


def _given_up(state: State) -> float:
    """Tell until when members of a round are waited for that a store which was emptied does not know."""
    assert state.since is not None
    return state.since + FINDING * state.policy.lease_ttl


def _refill(state: State, claim: RoundRecord) -> Move | None:
    """The store lost everything while a round ran: write that round anew, from those who run it."""
    members = [
        seen.record
        for seen in _nodes(state).values()
        if seen.record.entry is not None and seen.record.claim is not None and seen.record.claim.number == claim.number
    ]
    complete = len(members) == claim.nodes
    # A store that was emptied was often moved, too, and not all find it at once. Their workers go on: waiting is cheap.
    if not complete and not (state.settled and state.now >= _given_up(state)):
        return None
    intact = complete and all(member.state == NodeRecord.RUNNING for member in members)
    entries = tuple(member.entry for member in members if member.entry is not None)
    cut = parts(entries)
    current = replace(
        claim,
        phase=RoundRecord.SEALED if intact else RoundRecord.STOPPING,
        reason=claim.reason if intact else "the store was emptied, and not all workers came through it",
        parts=borders(cut),
        lost=() if complete else (UNKNOWN,),
        planned=False,
        follows=0,
        moved=(),
        arrivals=(),
    )
    state, effects = publishing.publish(state, current, cut, previous=None)
    text = f"round {current.number} written anew into the emptied store"
    return state, (*effects, Note("round refilled", text, {"round": current.number, "nodes": len(entries)}))


# -- a round under way ---------------------------------------------------------------------------------------------


def _reports(state: State, number: int) -> dict[str, Seen[ReportRecord]]:
    return {name: seen for (of, name), seen in state.view.reports.items() if of == number}


def _missing(state: State, roster: tuple[RosterEntry, ...], done: Set[str]) -> frozenset[str]:
    """Tell which members are lost or leaving. Absence counts only after a whole lease of unbroken connection."""
    nodes = _nodes(state)
    gone = set()
    for entry in roster:
        seen = nodes.get(entry.incarnation)
        if entry.incarnation in done:
            continue
        if seen is None:
            if state.settled:
                gone.add(entry.incarnation)
        elif seen.record.state == NodeRecord.LEAVING:
            gone.add(entry.incarnation)
    return frozenset(gone)


def _lost(state: State, current: RoundRecord) -> frozenset[str]:
    """Tell who was lost or leaving while the round came to its end, whoever led then."""
    noted = state.view.lost.get(current.number)
    return frozenset(current.lost + (noted.incarnations if noted else ()))


def _watch_over(state: State, seen: Seen[RoundRecord], roster: tuple[RosterEntry, ...]) -> Move | None:
    leading, current = state.leading, seen.record
    assert leading is not None
    reports = _reports(state, current.number)
    done = {name for name, report in reports.items() if report.record.done}
    if all(entry.incarnation in done for entry in roster):
        return publishing.succeed(state, current)
    missing = _missing(state, roster, done)
    nodes = _nodes(state)
    halted = {
        entry.incarnation
        for entry in roster
        if (node := nodes.get(entry.incarnation)) is not None
        and node.record.state == NodeRecord.STOPPED
        and node.record.round >= current.number
    }
    failed = [report for report in reports.values() if not report.record.done]
    if missing or failed or halted:
        verdict = judge(missing, reports, current, _budget(state), roster)
        state = replace(state, leading=replace(leading, ended_at=state.now))
        lost = tuple(sorted(missing))
        # Who leaves is still there, and its workers too: all may save together before they stop.
        courteous = not failed and not halted and missing <= nodes.keys()
        manner = STACKS if verdict.kind == "hang" else NOTICE if courteous else ""
        return publishing.stop_round(state, seen, replace(current, reason=verdict.reason, lost=lost, manner=manner))
    return _grow(state, seen, roster, done)


def _grow(state: State, seen: Seen[RoundRecord], roster: tuple[RosterEntry, ...], done: Set[str]) -> Move | None:
    leading, policy = state.leading, state.policy
    assert leading is not None
    members = {entry.incarnation for entry in roster}
    newcomers = [node for name, node in _nodes(state).items() if name not in members and _available(node.record)]
    if not newcomers or done or len(roster) >= policy.nodes.maximum:
        return None
    full = len(roster) + len(newcomers) >= policy.nodes.maximum
    if not full and state.now < leading.joined_at + policy.last_call:
        return None
    if leading.grew_at is not None and state.now < leading.grew_at + policy.grow_interval:
        return None
    state = replace(state, leading=replace(leading, ended_at=state.now, grew_at=state.now))
    hosts = listed(sorted(node.record.host for node in newcomers))
    joined = replace(seen.record, reason=f"{hosts} joined", planned=True, manner=NOTICE)
    return publishing.stop_round(state, seen, joined)


def _conclude(state: State, seen: Seen[RoundRecord], roster: tuple[RosterEntry, ...]) -> Move | None:
    """Every member has stopped or is gone: find the cause, and go on or end."""
    leading, current = state.leading, seen.record
    assert leading is not None
    if leading.ended_at is None:
        return replace(state, leading=replace(leading, ended_at=state.now)), ()
    reports = _reports(state, current.number)
    done = {name for name, report in reports.items() if report.record.done}
    missing, lost = _missing(state, roster, done), _lost(state, current)
    if not missing <= lost:
        # Written down, because the node may come back before the next round and the leader may change until then.
        manner = current.manner if current.manner == STACKS or missing <= _nodes(state).keys() else ""
        if manner == current.manner:
            return publishing.note_lost(state, seen, tuple(sorted((missing | lost) - set(current.lost))))
        verdict = judge(missing | lost, reports, current, _budget(state), roster)  # all are told: it is urgent now
        found = tuple(sorted(missing | lost))
        return publishing.stop_round(state, seen, replace(current, reason=verdict.reason, lost=found, manner=manner))
    nodes, stopped = _nodes(state), []
    for entry in roster:
        node = nodes.get(entry.incarnation)
        if node is None:
            # Who was seen leaving is not waited for, however short this connection is: it went when all was stopped.
            if not state.settled and entry.incarnation not in lost:
                return None
        elif node.record.state == NodeRecord.STOPPED and node.record.round >= current.number:
            stopped.append((entry, node))
        else:
            return None  # it is still stopping, or leaving
    counted = {
        name: report for name, report in reports.items() if not current.planned or report.created <= seen.modified
    }
    verdict = judge(lost, counted, current, _budget(state), roster)
    if verdict.final:
        return publishing.fail(state, current, verdict)
    members = {entry.incarnation for entry in roster}
    newcomers = [
        _candidate(name, node) for name, node in nodes.items() if name not in members and _available(node.record)
    ]
    if not verdict.plain and state.now < _not_before(leading):
        return None
    # A worker failure ends the row of short rounds; newcomers neither add to it nor end it.
    short_rounds = leading.fast if current.planned else 0
    if not verdict.plain:
        short_rounds = leading.fast + 1
    staying = [replace(_candidate(entry.incarnation, node), previous=entry.group_rank) for entry, node in stopped]
    return _form(
        state,
        [*staying, *newcomers],
        number=_next_number(state, current.number, UNKNOWN in lost),
        restarts=verdict.restarts,
        reason=verdict.reason,
        rebinds=verdict.rebinds,
        kind=verdict.kind,
        short_rounds=short_rounds,
    )


def _budget(state: State) -> int:
    run = state.view.run
    assert run is not None
    return run.record.max_restarts


def _was_short(leading: Leading) -> bool:
    return (
        leading.sealed_at is not None and leading.ended_at is not None and leading.ended_at < leading.sealed_at + SHORT
    )


def _not_before(leading: Leading) -> float:
    """Tell when the round after the current one may begin, if its end uses no budget."""
    if leading.ended_at is None or not _was_short(leading):
        return 0.0
    return leading.ended_at + min(2.0**leading.fast, LONGEST_WAIT)


# -- a new round ---------------------------------------------------------------------------------------------------


def _available(record: NodeRecord) -> bool:
    return record.state in (NodeRecord.READY, NodeRecord.STOPPED)


def _candidate(name: str, seen: Seen[NodeRecord]) -> Candidate:
    node = seen.record
    return Candidate(name, node.host, node.address, node.ports, node.workers, seen.created, node.rank)


def _form(
    state: State,
    ready: list[Candidate],
    *,
    number: int,
    restarts: int,
    reason: str,
    rebinds: int,
    kind: str = "",
    short_rounds: int = 0,
) -> Move | None:
    """Seal the next round if there are enough nodes, and as many as can be expected."""
    leading, policy = state.leading, state.policy
    assert leading is not None
    bounds = policy.nodes
    if state.leaving is not None:
        return None  # a leader that goes leaves this to the next one
    if len(ready) < bounds.minimum:
        if leading.waiting_since is None:
            text = f"round {number}: {len(ready)} of at least {bounds.minimum} nodes are here, waiting for more"
            waiting = replace(leading, waiting_since=state.now, patient=True)
            return replace(state, leading=waiting), (Note("waiting", text, {"round": number, "nodes": len(ready)}),)
        if state.now >= leading.waiting_since + policy.join_timeout:
            missing = bounds.minimum - len(ready)
            text = (
                f"run {state.me.run_id!r}, round {number}: {len(ready)} of at least {bounds.minimum} nodes joined in "
                f"{policy.join_timeout:g}s. Start {missing} more, lower --nnodes (LATTICE_NNODES), or raise "
                "--rdzv_conf join_timeout=SECONDS (LATTICE_RDZV_CONF)."
            )
            return publishing.end(state, OutcomeRecord(state.uuid, False, number, restarts, 1, text))
        return None
    if leading.waiting_since is not None:
        return replace(state, leading=replace(leading, waiting_since=None)), ()
    last_call = leading.joined_at + policy.last_call
    if leading.patient and len(ready) < bounds.maximum and state.now < last_call:
        text = f"round {number}: {len(ready)} of {bounds} nodes, last call for more ({policy.last_call:g}s)"
        if state.told == text:
            return None
        return replace(state, told=text), (Note("last call", text, {"round": number, "nodes": len(ready)}),)
    entries = assign(choose(ready, bounds.maximum))
    cut = parts(entries)
    # Where most stay what they are it is enough to name the others. Not where numbers are left out: somebody may have
    # been in the last round that is not in its roster as it was written into an emptied store.
    others = moved(leading.roster, entries)
    follows = leading.number if number == leading.number + 1 and len(others) < len(entries) // 4 else 0
    # The others find their places by when they came.
    came = {candidate.incarnation: candidate.joined for candidate in ready}
    staying = [entry.incarnation for entry in leading.roster if entry.group_rank not in others] if follows else ()
    rows = arrivals(entries, came, frozenset(staying))
    first = entries[0]
    record = RoundRecord(
        number=number,
        phase=RoundRecord.SEALED,
        restarts=restarts,
        reason=reason,
        master_address=first.address,
        master_port=first.ports[0],
        nodes=len(entries),
        world=sum(entry.workers for entry in entries),
        parts=borders(cut),
        rebinds=rebinds,
        follows=follows,
        moved=others if follows else (),
        arrivals=rows,
        kind=kind,
    )
    fast = short_rounds if _was_short(leading) else 0
    sealed = replace(leading, fast=fast, number=number, roster=(), sealed_at=state.now, ended_at=None, patient=False)
    last = leading.number if state.view.round is not None else None
    state, effects = publishing.publish(replace(state, leading=sealed), record, cut, previous=last)
    facts = {"round": number, "nodes": len(entries), "world": record.world, "reason": reason}
    text = f"round {number} sealed: {len(entries)} nodes, {record.world} workers" if bounds.maximum > 1 else ""
    return state, (*effects, Note("round sealed", text, facts))


RULES = (lead,)
