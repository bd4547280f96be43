"""Whether what a leader wrote follows from what really happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lattice.core.records import NodeRecord, OutcomeRecord, RoundRecord, RunRecord
from lattice.core.topology import RosterEntry

if TYPE_CHECKING:
    from tests.simulation.monitor import Monitor


def _broken(text: str) -> AssertionError:
    from tests.simulation.monitor import BrokenPromiseError  # the monitor imports this file

    return BrokenPromiseError(text)


def check_sealing(
    monitor: Monitor,
    run: RunRecord,
    old: RoundRecord | None,
    new: RoundRecord,
    entries: tuple[RosterEntry, ...],
) -> None:
    """A new round fits its roster, follows a stopped one, and counts restarts rightly."""
    number = new.number
    if len(entries) != new.nodes or sum(entry.workers for entry in entries) != new.world:
        raise _broken(f"round {number} and its roster differ: {new}, {entries}")
    offset = 0
    for rank, entry in enumerate(entries):
        if (entry.group_rank, entry.rank_offset) != (rank, offset):
            raise _broken(f"round {number}: ranks have gaps: {entries}")
        offset += entry.workers
    if not run.minimum <= new.nodes <= run.maximum:
        raise _broken(f"round {number} has {new.nodes} nodes")
    if new.restarts > run.max_restarts:
        raise _broken(f"round {number}: {new.restarts} restarts of {run.max_restarts}")
    if old is None:
        return
    if old.phase != RoundRecord.STOPPING:
        raise _broken(f"round {number} sealed while round {old.number} was {old.phase}")
    before = {entry.incarnation: entry.group_rank for entry in monitor.roster(old.number)}
    for agent in monitor.cluster.agents:
        workers = agent.workers
        busy = workers.phase in ("running", "stopping") and workers.assignment is not None
        # Whoever was out of sight may run on beside the new round for a while.
        if agent.running and agent.name in before and agent.name not in monitor.vanished and busy:
            assert workers.assignment is not None
            raise _broken(f"round {number} sealed while {agent.name} runs round {workers.assignment.round}")
    for entry in entries:
        had = before.get(entry.incarnation)
        if had is not None and had < new.nodes and had != entry.group_rank:
            raise _broken(f"round {number}: {entry.incarnation} had rank {had} and gets {entry.group_rank}")
    _check_budget(monitor, old, new)


def _check_budget(monitor: Monitor, old: RoundRecord, new: RoundRecord) -> None:
    number, rise = new.number, new.restarts - old.restarts
    failures = [report.failure for _, report in monitor.reports(old.number) if report.failure]
    if rise not in (0, 1):
        raise _broken(f"round {number}: restarts went from {old.restarts} to {new.restarts}")
    if rise and not failures:
        raise _broken(f"round {number} uses the budget, but nothing failed")
    if rise and monitor.dead:
        raise _broken(f"round {number} uses the budget, but {monitor.dead} died")
    stopped = monitor.mirror[monitor.keys.round].mod_revision
    before = any(report.failure and created <= stopped for created, report in monitor.reports(old.number))
    if rise and old.planned and not before:
        raise _broken(f"round {number} uses the budget for a planned change")
    plain = [failure for failure in failures if failure.kind == "worker"]
    if not rise and plain and not old.planned and not monitor.lost(old) and not monitor.vanished and not monitor.life:
        raise _broken(f"round {number} is free, but {plain[0]} failed")


def check_haste(monitor: Monitor, writer: str, old: RoundRecord | None, new: RoundRecord) -> None:
    """After a short round that ended for free the next one waits, unless newcomers were let in."""
    if (
        old is None
        or new.restarts > old.restarts
        or monitor.cluster.plan.spike
        or (old.planned and not monitor.lost(old))
    ):
        return
    (sealer, sealed), (stopper, stopped) = monitor.sealed, monitor.stopped
    leader = next(agent for agent in monitor.cluster.agents if agent.name == writer)
    knew = sealer == stopper == writer and leader.session.begun < sealed
    # What the leader sees and what the store sees differ by the time that messages take.
    slack = 4 * monitor.cluster.plan.latency[1]
    if knew and stopped - sealed < 10.0 - slack and monitor.cluster.world.now - stopped < 1.0 - slack:
        raise _broken(f"round {new.number} follows at once on a round of {stopped - sealed:.1f}s")


def check_stopping(monitor: Monitor, run: RunRecord, old: RoundRecord, new: RoundRecord) -> None:
    """A round ends for a reason."""
    if new.number != old.number or new.phase != RoundRecord.STOPPING or new.restarts != old.restarts:
        raise _broken(f"{old} became {new}")
    if old.phase == RoundRecord.STOPPING:
        return
    roster = monitor.roster(old.number)
    members = {entry.incarnation for entry in roster}
    if new.planned:
        if old.nodes >= run.maximum:
            raise _broken(f"round {old.number} was full and is stopped for newcomers")
        return
    nodes = {name: monitor.node(name) for name in members}
    absent = any(node is None or node.state == NodeRecord.LEAVING for node in nodes.values())
    halted = any(
        node is not None and node.state == NodeRecord.STOPPED and node.round >= old.number for node in nodes.values()
    )
    failed = any(report.failure for _, report in monitor.reports(old.number))
    if not (absent or halted or failed or monitor.vanished & members):
        raise _broken(f"round {old.number} is stopped without a reason: {new}")


def check_outcome(monitor: Monitor, outcome: OutcomeRecord) -> None:
    """The end follows from what workers really did."""
    run, current = monitor.run, monitor.round
    if run is None or run.uuid != outcome.uuid:
        raise _broken(f"an outcome of a run that is not there: {outcome}")
    if outcome.succeeded:
        if current is None or not monitor.roster(current.number):
            raise _broken("success without a round")
        for entry in monitor.roster(current.number):
            if (run.uuid, current.number, entry.incarnation) not in monitor.done_by:
                raise _broken(f"success, but {entry.incarnation} was not done")
    elif outcome.cause is None:
        if "joined in" not in outcome.reason:
            raise _broken(f"a failure without a cause: {outcome}")
    else:
        assert current is not None
        real = monitor.failures.get((run.uuid, current.number), [])
        if outcome.cause not in real:
            raise _broken(f"nobody failed like that: {outcome.cause}")
        reported = [(created, report.failure) for created, report in monitor.reports(current.number) if report.failure]
        first = min(reported, key=lambda pair: (pair[1].kind == "connection", pair[0]))[1]
        if outcome.cause != first:
            raise _broken(f"the first failure was {first}, not {outcome.cause}")
        if outcome.restarts < run.max_restarts or monitor.dead:
            raise _broken(f"ended too early: {outcome}, dead: {monitor.dead}")
