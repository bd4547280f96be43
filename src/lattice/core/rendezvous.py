"""The protocol of one agent: ``step(state, event) -> (state, effects)``; no clock, no I/O."""

from __future__ import annotations

from collections.abc import Callable

from lattice.core import leader, member
from lattice.core.dataclass import replace
from lattice.core.events import (
    Changed,
    Connected,
    Disconnected,
    Effect,
    Event,
    Finish,
    GoodbyeAsked,
    Note,
    ReadView,
    RosterRead,
    StoreFailed,
    Ticked,
    Viewed,
    WorkersDone,
    WorkersFailed,
    WorkersStopped,
    Written,
)
from lattice.core.records import ReportRecord
from lattice.core.spec import Policy
from lattice.core.state import Identity, Move, Place, State, View, Workers, changed

RULES: tuple[Callable[[State], Move | None], ...] = (*member.RULES, *leader.RULES)
"""tried in order after every event, until none applies"""


def begin(me: Identity, policy: Policy, ports: tuple[int, ...], now: float) -> State:
    """
    Give the state of an agent that has just started.

    :param ports: reserved for its first round
    :param now: the moment, on the clock that its events use
    """
    return State(me, policy, now, View(me.keys), ports, started=now)


def step(state: State, event: Event) -> tuple[State, tuple[Effect, ...]]:
    """
    Take one event and decide.

    :return: the next state, and what is to be done, in this order
    """
    if state.finished:
        return state, ()
    state, effects = absorb(replace(state, now=max(state.now, event.at)), event)
    if (state.view.leader is None) != (state.leaderless is not None):
        state = replace(state, leaderless=state.now if state.view.leader is None else None)
    collected = list(effects)
    for _ in range(100):
        for rule in RULES:
            move = rule(state)
            if move is not None:
                break
        else:
            return state, tuple(collected)
        state, effects = move
        collected.extend(effects)
        if state.finished:
            return state, tuple(collected)
    raise AssertionError(f"the rules do not come to rest: {collected[-5:]} in {state}")


def deadline(state: State) -> float | None:
    """Tell when the passing of time alone may change something: the shell sends Ticked then."""
    moments = [*member.moments(state), *leader.moments(state)]
    return min((moment for moment in moments if moment > state.now), default=None)


def absorb(state: State, event: Event) -> Move:
    """Note what happened, without deciding anything."""
    match event:
        case Ticked():
            return state, ()
        case Connected():
            return _connected(state, event), ()
        case Disconnected(reason=reason):
            return _disconnected(state, reason)
        case StoreFailed(reason=reason):
            return replace(state, ending=state.ending or Finish(1, reason, event="store refused")), ()
        case Viewed(whole=whole, items=items, revision=revision):
            before, view = state.view, changed(View(state.keys, whole), items, revision)
            return leader.watched(replace(state, view=view, pending=state.pending - {"view"}, awaited=0), before), ()
        case Changed(batch=batch):
            before, view = state.view, changed(state.view, batch.changes, batch.revision)
            return leader.watched(replace(state, view=view), before), ()
        case Written():
            return _written(state, event)
        case RosterRead(number=number, entries=entries):
            state = replace(state, pending=state.pending - {"roster"})
            if state.reading != state.uuid:
                return state, ()
            mine = next((entry for entry in entries if entry.incarnation == state.me.incarnation), None)
            members = tuple(sorted(entries, key=lambda entry: entry.group_rank)) if state.me.whole_roster else ()
            return replace(state, place=Place(number, mine, members)), ()
        case WorkersFailed(failure=failure):
            return _workers_failed(state, ReportRecord(state.me.incarnation, failure)), ()
        case WorkersDone(pace=pace):
            if state.workers is not Workers.RUNNING:
                return state, ()  # they exited 0 because they were told to stop: that is not the end of their work
            report = ReportRecord(state.me.incarnation, pace=pace)
            return replace(state, workers=Workers.DONE, report=report, report_sent=False), ()
        case WorkersStopped(ports=ports):
            if state.workers not in (Workers.STOPPING, Workers.IDLE):
                return state, ()  # the echo of an earlier round
            return replace(state, workers=Workers.IDLE, ports=ports), ()
        case GoodbyeAsked(signal=signal, reason=reason):
            text = f"{reason or 'leaving'}: stopping the workers and telling the others"
            facts = {"signal": signal, **({"reason": reason} if reason else {})}
            return replace(state, leaving=signal, asked=reason), (Note("goodbye asked", text, facts),)
        case _:
            raise TypeError(f"not an event: {event!r}")


def _connected(state: State, event: Connected) -> State:
    again = state.round is not None
    view = changed(View(state.keys), event.items, event.revision)
    # Whoever came before there was a run, or somebody to lead it, has to say so once more.
    counts = view.run is not None and view.leader is not None
    return replace(
        state,
        lease=event.lease,
        since=event.at,
        trouble="",
        met=True,
        view=view,
        pending=frozenset(),
        awaited=0,
        kept=0,
        emptied=state.emptied or (event.emptied and bool(state.uuid)),
        sent=event.greeting if counts else None,
        came=0 if event.greeting is None else event.revision,
        claiming=again,
        report_sent=False,
        place=None,
        found_dead=None if state.found_dead is None else event.at,
        leaderless=None,
        leading=None,
    )


def _workers_failed(state: State, report: ReportRecord) -> State:
    if state.workers not in (Workers.RUNNING, Workers.STOPPING) or state.report is not None:
        return state
    return replace(state, workers=Workers.STOPPING, report=report, report_sent=False)


def _disconnected(state: State, reason: str) -> Move:
    first = state.lease is not None or state.since is None
    lost = replace(
        state,
        lease=None,
        since=state.now if first else state.since,
        trouble=reason,
        pending=frozenset(),
        leading=None,
    )
    if not state.met:
        patience = f"trying for {state.policy.connect_timeout:g}s"
    elif state.workers is Workers.RUNNING:
        patience = f"workers go on for {member.grace(state):g}s without it"
    else:
        patience = f"trying for {member.grace(state):g}s"
    # Once the job has ended, whoever served its store may be gone first: no news to anybody.
    text = "" if state.asked else f"{reason}; {patience}"
    return lost, (Note("store lost", text, {"reason": reason}),) if first else ()


def _written(state: State, event: Written) -> Move:
    state = replace(state, pending=state.pending - {event.tag})
    if event.succeeded:
        # Only what is watched will be seen: a node's own record is not, unless it leads.
        watched = state.view.whole or event.tag in ("run", "leader", "lead")
        came = state.came or (event.revision if event.tag in ("run", "node") else 0)
        awaited = max(state.awaited, event.revision) if watched else state.awaited
        return replace(state, awaited=awaited, came=came), ()
    if event.tag in ("run", "leader"):
        # Somebody else was faster. What they wrote is watched: it has come, or will, and nobody needs to ask for it.
        sent = state.sent if event.tag == "leader" else None
        return replace(state, sent=sent, awaited=max(state.awaited, state.tried + 1)), ()
    # Something is not as it was seen: look again before deciding anything.
    state = replace(state, sent=None, report_sent=False, pending=state.pending | {"view"})
    return state, (ReadView(state.view.whole),)
