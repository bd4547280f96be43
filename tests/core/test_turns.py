"""Who tries to lead when nobody does: a few at once, the others later, and all of them within a second or so."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from lattice.core import rendezvous
from lattice.core.electing import EAGER, TURN, turn
from lattice.core.events import Changed, Connected, Event, ReadView, Ticked, Write, Written
from lattice.core.keyspace import Batch, KeyValue, Removed
from lattice.core.records import LeaderRecord, RunRecord
from lattice.core.spec import NodeRange, Policy
from lattice.core.state import Identity, State
from lattice.core.topology import RosterEntry


def agent(rank: int | None, nodes: int = 1000) -> State:
    me = Identity("job", f"{rank or 0:016x}", "host", "10.0.0.1", 1)
    state = rendezvous.begin(me, Policy(NodeRange(1, nodes)), (1,), 0.0)
    entry = None if rank is None else RosterEntry(me.incarnation, rank, rank, 1, "host", "10.0.0.1", (1,))
    return replace(state, entry=entry)


def told(state: State, *events: Event) -> tuple[State, list[Write | ReadView]]:
    asked: list[Write | ReadView] = []
    for event in events:
        state, effects = rendezvous.step(state, event)
        asked += [effect for effect in effects if isinstance(effect, Write | ReadView)]
    return state, asked


def member_of_a_run(rank: int) -> State:
    """A registered member that has just seen the leader go."""
    state = agent(rank)
    keys = state.keys
    run = KeyValue(keys.run, RunRecord("uuid", 1, 1000, 0, 77).encode(), 5, 5)
    leader = KeyValue(keys.leader, LeaderRecord("another").encode(), 5, 5)
    state, asked = told(state, Connected(1.0, 9, (run, leader), 6))
    assert [effect.tag for effect in asked if isinstance(effect, Write)] == ["node"]
    state, _ = told(replace(state, entry=agent(rank).entry), Written(2.0, "node", True, 7))
    return state


def gone(state: State, at: float) -> Changed:
    return Changed(at, Batch((Removed(state.keys.leader, 20),), 20))


def test_few_never_wait_and_nobody_waits_long() -> None:
    waits = Counter(turn(agent(rank)) for rank in range(1000))
    assert waits[0.0] == EAGER
    assert max(waits) <= 1.0
    assert all(turn(agent(rank, nodes=8)) == 0.0 for rank in range(8))
    assert all(turn(agent(rank)) <= turn(agent(rank + 1)) for rank in range(999))


def test_nobody_waits_in_a_small_cluster_before_its_first_round() -> None:
    assert turn(agent(None, nodes=EAGER)) == 0.0


def test_the_first_ranks_try_at_once() -> None:
    state = member_of_a_run(1)
    _, asked = told(state, gone(state, 3.0))
    assert [effect.tag for effect in asked if isinstance(effect, Write)] == ["leader"]


def test_a_late_one_waits_and_sees_that_somebody_leads() -> None:
    state = member_of_a_run(500)
    state, asked = told(state, gone(state, 3.0))
    assert not asked
    assert rendezvous.deadline(state) == 3.0 + turn(state) > 3.0 + TURN
    leader = KeyValue(state.keys.leader, LeaderRecord("another").encode(), 21, 21)
    state, asked = told(state, Changed(3.1, Batch((leader,), 21)))
    assert not asked and state.leaderless is None


def test_a_late_one_tries_when_its_turn_has_come() -> None:
    state = member_of_a_run(500)
    state, _ = told(state, gone(state, 3.0))
    moment = rendezvous.deadline(state)
    assert moment is not None
    _, asked = told(state, Ticked(moment))
    assert [effect.tag for effect in asked if isinstance(effect, Write)] == ["leader"]


def test_who_was_beaten_waits_to_see_by_whom_and_reads_nothing() -> None:
    state = member_of_a_run(1)
    state, _ = told(state, gone(state, 3.0))
    state, asked = told(state, Written(3.1, "leader", False, 21))
    assert not asked and not state.caught_up
    leader = KeyValue(state.keys.leader, LeaderRecord("another").encode(), 21, 21)
    state, asked = told(state, Changed(3.2, Batch((leader,), 21)))
    assert not asked and state.caught_up


def test_who_was_beaten_and_saw_it_before_the_answer_goes_on() -> None:
    state = member_of_a_run(1)
    state, _ = told(state, gone(state, 3.0))
    leader = KeyValue(state.keys.leader, LeaderRecord("another").encode(), 21, 21)
    state, asked = told(state, Changed(3.1, Batch((leader,), 21)), Written(3.2, "leader", False, 21))
    assert not asked and state.caught_up
