"""Whoever comes to a run that is led has joined with its first word, and learns its place by when it came."""

from __future__ import annotations

import json

import pytest

from lattice.core import rendezvous
from lattice.core.dataclass import replace
from lattice.core.events import Changed, Connected, Effect, Event, ReadRoster, StartWorkers, Viewed, Write, Written
from lattice.core.keyspace import Batch, CreatedAt, KeyValue, Put, Removed
from lattice.core.member import greet
from lattice.core.records import LeaderRecord, NodeRecord, Record, RoundRecord, RunRecord
from lattice.core.spec import NodeRange, Policy
from lattice.core.state import Identity, State

POLICY = Policy(NodeRange(2, 100))
ME = Identity("job", "me", "my-host", "10.0.0.1", 4)
CAME = 30
RUN = RunRecord("uuid", 2, 100, 0, 77)
LEADER = LeaderRecord("other")


def item(key: str, record: Record | bytes, revision: int) -> KeyValue:
    return KeyValue(key, record if isinstance(record, bytes) else record.encode(), revision, revision)


def run_and_leader(leader: LeaderRecord | bytes | None = LEADER) -> tuple[KeyValue, ...]:
    led = () if leader is None else (item(ME.keys.leader, leader, 20),)
    return (*led, item(ME.keys.run, RUN, 20))


def unaware() -> bytes:
    """What an agent wrote that knew nothing of greetings."""
    fields = json.loads(LEADER.encode())
    del fields["greeted"]
    return json.dumps(fields).encode()


def told(state: State, *events: Event) -> tuple[State, list[Effect]]:
    done: list[Effect] = []
    for event in events:
        state, effects = rendezvous.step(state, event)
        done += effects
    return state, done


def come(items: tuple[KeyValue, ...], *, me: Identity = ME, written: bool = True) -> tuple[State, list[Effect]]:
    record, _ = greet(me, POLICY, (1,), lease=9)
    connected = Connected(1.0, 9, items, CAME, greeting=record if written else None)
    return told(rendezvous.begin(me, POLICY, (1,), 0.0), connected)


def registered(effects: list[Effect]) -> list[NodeRecord]:
    puts = [
        one for effect in effects if isinstance(effect, Write) for txn in effect.transactions for one in txn.operations
    ]
    return [
        NodeRecord.decode(put.value) for put in puts if isinstance(put, Put) and put.key == ME.keys.node(ME.incarnation)
    ]


def sealed(**facts: object) -> Changed:
    record = RoundRecord(1, RoundRecord.SEALED, 0, "first round", "10.0.0.9", 99, 10, 40, ("",))
    changed = replace(record, **facts)  # type: ignore[arg-type]
    return Changed(2.0, Batch((item(ME.keys.round, changed, 50),), 50))


def test_a_greeting_never_replaces_a_record_and_looks_at_the_run() -> None:
    record, transaction = greet(ME, POLICY, (1,), lease=9)
    assert transaction.guards == (CreatedAt(ME.keys.node("me"), 0),)
    assert transaction.operations == (Put(ME.keys.node("me"), record.encode(), 9),)
    assert transaction.read == ME.keys.control
    assert (record.state, record.host, record.ports, record.workers) == (NodeRecord.READY, "my-host", (1,), 4)


def test_whoever_comes_to_a_run_that_is_led_says_nothing_more() -> None:
    state, effects = come(run_and_leader())
    assert state.uuid == "uuid"
    assert registered(effects) == []


@pytest.mark.parametrize(
    ("items", "written"),
    [(run_and_leader(unaware()), True), (run_and_leader(), False)],
    ids=["the leader knows no greetings", "there was a record already"],
)
def test_a_greeting_that_does_not_count_is_followed_by_a_registration(
    items: tuple[KeyValue, ...], written: bool
) -> None:
    _, effects = come(items, written=written)
    assert [record.uuid for record in registered(effects)] == ["uuid"]


@pytest.mark.parametrize("items", [(), run_and_leader(None)], ids=["no run", "no leader"])
def test_a_greeting_before_somebody_leads_does_not_count(items: tuple[KeyValue, ...]) -> None:
    late = replace(ME, incarnation="late")  # not one of those who begin a run at once
    state, effects = come(items, me=late)
    assert not any(isinstance(effect, Write) for effect in effects)
    record = replace(greet(late, POLICY, (1,), 9)[0], uuid="uuid")
    _, effects = told(state, Changed(1.05, Batch(run_and_leader(), 40)))
    (write,) = [effect for effect in effects if isinstance(effect, Write)]
    assert write.transactions[0].operations == (Put(ME.keys.node("late"), record.encode(), 9),)


def test_a_later_leader_that_knows_no_greetings_is_told() -> None:
    state, _ = come(run_and_leader())
    gone = Changed(2.0, Batch((Removed(ME.keys.leader, 40),), 40))
    other = Changed(2.0, Batch((item(ME.keys.leader, unaware(), 41),), 41))
    _, effects = told(state, gone, other)
    assert [record.uuid for record in registered(effects)] == ["uuid"]


def test_an_address_that_was_not_known_at_first_is_told() -> None:
    record, _ = greet(replace(ME, address="127.0.0.1"), POLICY, (1,), lease=9)
    connected = Connected(1.0, 9, run_and_leader(), CAME, greeting=record)
    _, effects = told(rendezvous.begin(ME, POLICY, (1,), 0.0), connected)
    assert [record.address for record in registered(effects)] == ["10.0.0.1"]


@pytest.mark.parametrize("rows", [((CAME, 7, 1),), ((3, 1, 2), (CAME - 2, 5, 9))], ids=["alone", "among others"])
def test_a_place_is_known_by_when_the_node_came(rows: tuple[tuple[int, int, int], ...]) -> None:
    state, _ = come(run_and_leader())
    _, effects = told(state, sealed(arrivals=rows))
    assert not [effect for effect in effects if isinstance(effect, ReadRoster)]
    (start,) = [effect for effect in effects if isinstance(effect, StartWorkers)]
    entry = start.assignment.entry
    assert (entry.incarnation, entry.group_rank, entry.rank_offset, entry.workers) == ("me", 7, 28, 4)
    assert (entry.host, entry.address, entry.ports) == ("my-host", "10.0.0.1", (1,))


@pytest.mark.parametrize(
    ("rows", "me"),
    [
        ((), ME),
        (((CAME + 1, 7, 3), (CAME - 3, 1, 3)), ME),
        (((CAME, 0, 5),), ME),
        (((CAME, 7, 1),), replace(ME, whole_roster=True)),
    ],
    ids=["nothing is told", "others came", "rank 0", "all members are needed"],
)
def test_otherwise_the_place_is_read(rows: tuple[tuple[int, int, int], ...], me: Identity) -> None:
    state, _ = come(run_and_leader(), me=me)
    _, effects = told(state, sealed(arrivals=rows))
    assert [effect.number for effect in effects if isinstance(effect, ReadRoster)] == [1]


def test_revisions_of_an_earlier_connection_mean_nothing() -> None:
    state, _ = come(run_and_leader())
    state, _ = told(state, Connected(2.0, 9, run_and_leader(), 40), Written(2.1, "node", True, 41))
    _, effects = told(state, sealed(arrivals=((CAME, 7, 1),)))
    assert [effect.number for effect in effects if isinstance(effect, ReadRoster)] == [1]


@pytest.mark.parametrize(
    ("bounds", "revision", "counts"),
    [
        (NodeRange(2, 2), 21, True),
        (NodeRange(2, 2), 19, False),
        (NodeRange(2, 3), 21, False),
    ],
    ids=["a newcomer", "of an earlier run", "other bounds"],
)
def test_a_leader_counts_greetings_that_were_meant_for_its_run(bounds: NodeRange, revision: int, counts: bool) -> None:
    policy, keys = Policy(NodeRange(2, 2)), ME.keys
    mine, _ = greet(ME, policy, (1,), lease=9)
    theirs, _ = greet(replace(ME, incarnation="other"), replace(policy, nodes=bounds), (1,), lease=8)
    control = (item(keys.leader, LeaderRecord("me"), 20), item(keys.run, replace(RUN, maximum=2), 20))
    nodes = (item(keys.node("me"), replace(mine, uuid="uuid"), 20), item(keys.node("other"), theirs, revision))
    _, effects = told(
        rendezvous.begin(ME, policy, (1,), 0.0),
        Connected(1.0, 9, control, 20),
        Viewed(1.1, True, (*control, *nodes), 22),
        Written(1.2, "node", True, 22),
    )
    rounds = [effect for effect in effects if isinstance(effect, Write) and effect.tag == "lead"]
    assert bool(rounds) is counts
