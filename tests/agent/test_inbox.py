"""Events come out in the order in which they went in; changes behind each other come out as one."""

from __future__ import annotations

import itertools
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from lattice.agent.inbox import Inbox, merged
from lattice.core.events import Changed, Event, Ticked
from lattice.core.keyspace import Batch, Removed


def change(revision: int) -> Changed:
    return Changed(
        float(revision), Batch((Removed(f"a{revision}", revision), Removed(f"b{revision}", revision)), revision)
    )


def flat(events: list[Event]) -> list[object]:
    """What the events say, whatever batches it came in."""
    told: list[object] = []
    for event in events:
        told += event.batch.changes if isinstance(event, Changed) else [event]
    return told


@given(st.lists(st.booleans()))
def test_nothing_is_lost_or_overtaken_and_no_two_changes_stay_apart(kinds: list[bool]) -> None:
    events: list[Event] = [change(at) if kind else Ticked(float(at)) for at, kind in enumerate(kinds)]
    taken = list(merged(deque(events)))
    assert flat(taken) == flat(events)
    assert not any(isinstance(one, Changed) and isinstance(two, Changed) for one, two in itertools.pairwise(taken))
    last = [event for event in events if isinstance(event, Changed)][-1:]
    assert [event.batch.revision for event in taken if isinstance(event, Changed)][-1:] == [
        event.batch.revision for event in last
    ]


def test_what_is_put_while_others_are_taken_is_taken_too() -> None:
    inbox = Inbox()
    try:
        inbox.put(change(1))
        taken: list[Event] = []
        for event in inbox.take():
            taken.append(event)
            if len(taken) == 1:
                inbox.put(Ticked(2.0))
                inbox.put(change(3))
                inbox.put(change(4))
        assert [type(event) for event in taken] == [Changed, Ticked, Changed]
        assert flat(taken[2:]) == flat([change(3), change(4)])
    finally:
        inbox.close()
