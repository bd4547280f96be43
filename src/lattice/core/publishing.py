"""What the leader writes: each in one transaction that fails if somebody else leads or was faster."""

from __future__ import annotations

from lattice.core.dataclass import replace
from lattice.core.events import Note
from lattice.core.incident import Verdict
from lattice.core.keyspace import CreatedAt, Delete, ModifiedAt, Put, Transaction
from lattice.core.records import LeaderRecord, LostRecord, OutcomeRecord, RosterRecord, RoundRecord
from lattice.core.state import Move, Seen, State, lease_of, write
from lattice.core.topology import RosterEntry

PARTS_PER_WRITE = 64
"""roster parts in one transaction: far below what etcd takes"""


def _guards(state: State) -> tuple[CreatedAt | ModifiedAt, ...]:
    """Whoever is no longer the leader writes nothing."""
    leader = state.view.leader
    assert leader is not None
    return (CreatedAt(state.keys.leader, leader.created),)


def _same_round(state: State) -> ModifiedAt:
    seen = state.view.round
    return ModifiedAt(state.keys.round, seen.modified if seen else 0)


def publish(
    state: State,
    record: RoundRecord,
    cut: tuple[tuple[RosterEntry, ...], ...],
    previous: int | None,
) -> Move:
    """Write the roster, then, guarded by what was there before, the round; what older rounds left is removed."""
    run, keys = state.view.run, state.keys
    assert run is not None
    lease, guards = run.record.lease, _guards(state)
    rosters = [
        Put(keys.roster(record.number, index), RosterRecord(part).encode(), lease) for index, part in enumerate(cut)
    ]
    old = (keys.rosters(previous), keys.reports(previous), keys.groups(previous)) if previous else ()
    clean = [Delete(prefix, prefix=True) for prefix in old]
    clean += [Delete(keys.lost(previous))] if previous else []
    *early, last = [tuple(rosters[at : at + PARTS_PER_WRITE]) for at in range(0, len(rosters), PARTS_PER_WRITE)]
    final: tuple[Put | Delete, ...] = (*last, Put(keys.round, record.encode(), lease), *clean)
    guards = (*guards, _same_round(state))  # every part too: one that is delayed must not arrive in a sealed round
    transactions = [Transaction(puts, guards) for puts in [*early, final]]
    return write(state, "lead", *transactions)


def stop_round(state: State, seen: Seen[RoundRecord], record: RoundRecord) -> Move:
    """Tell every member to stop its workers."""
    record = replace(record, phase=RoundRecord.STOPPING, follows=0, moved=(), arrivals=())
    run = state.view.run
    assert run is not None
    put = Put(state.keys.round, record.encode(), run.record.lease)
    guards = (*_guards(state), ModifiedAt(state.keys.round, seen.modified))
    state, effects = write(state, "lead", Transaction((put,), guards))
    facts = {"round": record.number, "reason": record.reason}
    return state, (*effects, Note("round stopping", "", facts))


def note_lost(state: State, seen: Seen[RoundRecord], lost: tuple[str, ...]) -> Move:
    """Write down who else was lost while a round is stopping, where only leaders look."""
    run = state.view.run
    assert run is not None
    put = Put(state.keys.lost(seen.record.number), LostRecord(lost).encode(), run.record.lease)
    return write(state, "lead", Transaction((put,), (*_guards(state), ModifiedAt(state.keys.round, seen.modified))))


def end(state: State, outcome: OutcomeRecord) -> Move:
    """Write how the run ended; all else of it goes in the same moment, so that the id is free once that lapses."""
    keys, lease = state.keys, lease_of(state.uuid, "outcome")
    operations = (
        Put(keys.outcome, outcome.encode(), lease),
        Delete(keys.run),
        Delete(keys.round),
        Delete(keys.rosters(), prefix=True),
        Delete(keys.lost(), prefix=True),
        Delete(keys.reports(), prefix=True),
        Delete(keys.groups(), prefix=True),
    )
    # The round too: an end that is delayed must not meet a round that began meanwhile.
    guards = (*_guards(state), CreatedAt(keys.outcome, 0), _same_round(state))
    ttl, run = state.policy.outcome_ttl, state.view.run
    if run is not None and run.record.refill:
        # A member that was cut off meanwhile will find a store without its run, and take that for emptied just now.
        # It must still find the outcome when it is back, or it would begin the run again.
        ttl = max(ttl, state.policy.store_grace + state.policy.lease_ttl)
    return write(state, "lead", Transaction(operations, guards), grants=((lease, ttl),))


def succeed(state: State, current: RoundRecord) -> Move:
    """Write that all members are done."""
    reports = [seen for (number, _), seen in state.view.reports.items() if number == current.number]
    paces = sorted((seen.record.pace for seen in reports if seen.record.pace), key=lambda pace: pace.step)
    outcome = OutcomeRecord(
        state.uuid,
        True,
        current.number,
        current.restarts,
        0,
        "all workers exited 0",
        slowest=paces[-1] if paces else None,
        typical=paces[len(paces) // 2].step if paces else 0.0,
    )
    return end(state, outcome)


def fail(state: State, current: RoundRecord, verdict: Verdict) -> Move:
    """Write why the run ends."""
    status = verdict.cause.status if verdict.cause else 1
    return end(
        state,
        OutcomeRecord(
            state.uuid,
            False,
            current.number,
            current.restarts,
            status or 1,
            verdict.reason,
            verdict.cause,
            verdict.others,
        ),
    )


def clear(state: State) -> Move:
    """Remove a run whose agents are all gone, and lead what comes; the rule that makes runs makes the next."""
    keys, run = state.keys, state.view.run
    assert run is not None and state.lease is not None
    operations = (
        Put(keys.leader, LeaderRecord(state.me.incarnation).encode(), state.lease),
        Delete(keys.run),
        Delete(keys.round),
        Delete(keys.rosters(), prefix=True),
        Delete(keys.lost(), prefix=True),
        Delete(keys.reports(), prefix=True),
        Delete(keys.groups(), prefix=True),
    )
    guards = (CreatedAt(keys.leader, 0), CreatedAt(keys.run, run.created), _same_round(state))
    return write(replace(state, tried=state.view.revision), "run", Transaction(operations, guards))
