"""Who leads when nobody does, and what whoever leads owes the others: one rule per function."""

from __future__ import annotations

from collections.abc import Iterator

from lattice.core.dataclass import replace
from lattice.core.events import KeepAlive, Note, ReadView
from lattice.core.keyspace import CreatedAt, Put, Transaction
from lattice.core.records import LeaderRecord
from lattice.core.state import Move, State, lease_of, write

EAGER = 8
"""nodes that try to lead, or to begin a run, at once when nobody does"""
TURN = 0.1
"""seconds after which twice as many do"""


def moments(state: State) -> Iterator[float]:
    """Give the moments at which a rule here may begin to apply."""
    if state.leaderless is not None:
        yield state.leaderless + turn(state)


def turn(state: State) -> float:
    """
    Tell how long this node leaves the lead to others when nobody has it.

    Were all of a thousand nodes to try in the same moment, one would succeed and the store would be busy refusing the
    others. So a few try at once, and if none of them leads soon as many again, and so on: even if all but the last
    are gone it takes a second.
    """
    if state.entry is not None:
        number = state.entry.group_rank
    else:
        number = lease_of(state.me.incarnation, "turn") % state.policy.nodes.maximum
    return TURN * (number // EAGER).bit_length()


def waits(state: State) -> bool:
    """Tell whether others are to try first."""
    return state.leaderless is not None and state.now < state.leaderless + turn(state)


def campaign(state: State) -> Move | None:
    """Nobody leads: try to, after those whose turn is earlier."""
    run = state.view.run
    if state.lease is None or state.ending or state.leaving or run is None or run.record.uuid != state.uuid:
        return None
    if state.view.leader is not None or state.sent is None or state.view.outcome is not None:
        return None
    if state.pending & {"leader", "node", "run", "view"} or not state.caught_up:
        return None
    if waits(state):
        return None
    put = Put(state.keys.leader, LeaderRecord(state.me.incarnation).encode(), state.lease)
    guards = (CreatedAt(state.keys.leader, 0), CreatedAt(state.keys.run, run.created))
    return write(replace(state, tried=state.view.revision), "leader", Transaction((put,), guards))


def widen(state: State) -> Move | None:
    """A leader watches everything; whoever leads no more, only what everybody watches."""
    if state.lease is None or state.ending or "view" in state.pending or state.view.whole == state.leads:
        return None
    note = (Note("leading", "", {}),) if state.leads else ()
    return replace(state, pending=state.pending | {"view"}, leading=None), (ReadView(whole=state.leads), *note)


def keep_run(state: State) -> Move | None:
    """Whoever leads keeps the records of the run alive."""
    run = state.view.run
    lease = run.record.lease if state.leads and run is not None else 0
    return None if lease == state.kept or state.lease is None else (replace(state, kept=lease), (KeepAlive(lease),))


RULES = (campaign, keep_run, widen)
