"""What the leader writes: each in one transaction that fails if somebody else leads or was faster."""

from __future__ import annotations

from dataclasses import replace

from lattice.core.events import Note
from lattice.core.keyspace import CreatedAt, Delete, ModifiedAt, Put, Transaction
from lattice.core.records import OutcomeRecord, RosterRecord, RoundRecord
from lattice.core.state import Move, Seen, State, lease_of, write
from lattice.core.topology import RosterEntry

PARTS_PER_WRITE = 8
"""roster parts in one transaction: far below what etcd takes"""


def _guards(state: State) -> tuple[CreatedAt | ModifiedAt, ...]:
    """Whoever is no longer the leader writes nothing."""
    leader = state.view.leader
    assert leader is not None
    return (CreatedAt(state.keys.leader, leader.created),)


def publish(
    state: State,
    record: RoundRecord,
    cut: tuple[tuple[RosterEntry, ...], ...],
    previous: int | None,
) -> Move:
    """Write the roster, then, guarded by what was there before, the round; what older rounds left is removed."""
    run, seen, keys = state.view.run, state.view.round, state.keys
    assert run is not None
    lease, guards = run.record.lease, _guards(state)
    rosters = [
        Put(keys.roster(record.number, index), RosterRecord(part).encode(), lease) for index, part in enumerate(cut)
    ]
    clean = () if not previous else (Delete(keys.rosters(previous), True), Delete(keys.reports(previous), True))
    *early, last = [tuple(rosters[at : at + PARTS_PER_WRITE]) for at in range(0, len(rosters), PARTS_PER_WRITE)]
    before = ModifiedAt(keys.round, seen.modified if seen else 0)
    final = (*last, Put(keys.round, record.encode(), lease), *clean)
    transactions = [Transaction(puts, guards) for puts in early] + [Transaction(final, (*guards, before))]
    return write(state, "lead", *transactions)


def stop_round(state: State, seen: Seen[RoundRecord], record: RoundRecord) -> Move:
    """Tell every member to stop its workers."""
    record = replace(record, phase=RoundRecord.STOPPING)
    run = state.view.run
    assert run is not None
    put = Put(state.keys.round, record.encode(), run.record.lease)
    guards = (*_guards(state), ModifiedAt(state.keys.round, seen.modified))
    state, effects = write(state, "lead", Transaction((put,), guards))
    facts = {"round": record.number, "reason": record.reason}
    return state, (*effects, Note("round stopping", "", facts))


def end(state: State, outcome: OutcomeRecord) -> Move:
    """Write how the run ended; all else of it goes in the same moment, so that the id is free once that lapses."""
    keys, lease = state.keys, lease_of(state.uuid, "outcome")
    operations = (
        Put(keys.outcome, outcome.encode(), lease),
        Delete(keys.run),
        Delete(keys.round),
        Delete(keys.rosters(), prefix=True),
        Delete(keys.reports(), prefix=True),
    )
    guards = (*_guards(state), CreatedAt(keys.outcome, 0))
    return write(state, "lead", Transaction(operations, guards), grants=((lease, state.policy.outcome_ttl),))


def clear(state: State) -> Move:
    """Remove a run whose agents are all gone; the rule that makes runs makes the next."""
    keys, run = state.keys, state.view.run
    assert run is not None
    operations = (
        Delete(keys.run),
        Delete(keys.round),
        Delete(keys.rosters(), prefix=True),
        Delete(keys.reports(), prefix=True),
    )
    return write(state, "lead", Transaction(operations, (CreatedAt(keys.run, run.created), *_guards(state))))
