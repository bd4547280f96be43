from __future__ import annotations

from dataclasses import replace

import pytest

from lattice.core.directory import EndRecord, EntryRecord, JobKeys, JobView, changed, listing
from lattice.core.events import Disconnected, GoodbyeAsked, Note
from lattice.core.keyspace import KeyValue, Removed
from lattice.core.rendezvous import begin, step
from lattice.core.roles import late_variables, role_names, variable_of
from lattice.core.spec import NodeRange, Policy
from lattice.core.state import Identity, Workers

KEYS = JobKeys("j")


def entry(role: str, address: str, node: int | None, *ports: int) -> EntryRecord:
    return EntryRecord(role, "h", address, node, ports)


def put(key: str, value: bytes) -> KeyValue:
    return KeyValue(key, value, 1, 1)


def test_keys() -> None:
    assert KEYS.entry("learner", "i") == "/lattice/j/roles/learner/i"
    assert KEYS.end == "/lattice/j/end"
    assert not KEYS.agent("i").startswith(KEYS.root), "nobody follows them"
    assert JobKeys("%agents").root != "/lattice/%agents/", "no id is spelled like that"


def test_records_are_read_as_they_were_written() -> None:
    for record in (entry("learner", "::1", 3, 1, 2), entry("a", "b", None), EndRecord("a", "r", 3, "because")):
        assert type(record).decode(record.encode()) == record


def test_who_is_there_in_order_of_rank() -> None:
    entries = {
        "c": entry("worker", "10.0.0.3", 0, 1, 2),
        "b": entry("worker", "::1", None, 5),
        "a": entry("worker", "10.0.0.1", 11, 4),
        "d": entry("worker", "10.0.0.2", 2, 3),
        "e": entry("other", "10.0.0.9", 0, 9),
    }
    assert listing(("learner", "worker"), entries) == {
        "learner": [],
        "worker": ["10.0.0.3:1", "10.0.0.3:2", "10.0.0.2:3", "10.0.0.1:4", "[::1]:5"],
        "other": ["10.0.0.9:9"],
    }


def test_changes_are_followed() -> None:
    one, two = entry("a", "x", 0, 1), entry("a", "y", 1, 2)
    view = changed(JobView(), KEYS, [put(KEYS.entry("a", "1"), one.encode()), put(KEYS.entry("a", "2"), two.encode())])
    assert list(view.entries.values()) == [one, two]
    view = changed(view, KEYS, [Removed(KEYS.entry("a", "1"), 2), Removed(KEYS.entry("a", "9"), 2)])
    assert list(view.entries.values()) == [two] and view.end is None
    end = EndRecord("a", "r", 0)
    assert changed(view, KEYS, [put(KEYS.end, end.encode())]).end == end


@pytest.mark.parametrize("value", [b"", b"[]", b'{"v":1}', b'{"v":2,"role":"a","status":0}', b"\xff"])
def test_what_cannot_be_read_counts_as_not_there(value: bytes) -> None:
    keys = (KEYS.entry("a", "1"), KEYS.end, KEYS.roles, f"{KEYS.root}control/run")
    assert changed(JobView(), KEYS, [put(key, value) for key in keys]) == JobView()


def test_the_end_in_words() -> None:
    assert str(EndRecord("learner", "r", 0)) == "the job ended: role learner succeeded"
    assert str(EndRecord("learner", "r", 3, "rank 0")) == "the job ended: role learner failed: rank 0"


def test_variables() -> None:
    assert variable_of("roll-out") == "LATTICE_PEERS_ROLL_OUT"
    assert late_variables(("a",)) == {"LATTICE_PEERS_FILE", "LATTICE_WORKER_PORT", "LATTICE_PEERS_A"}
    assert role_names(" a, b-1 ") == ("a", "b-1") and role_names("") == ()


@pytest.mark.parametrize("reason", ["", "the job ended: role learner succeeded"])
def test_a_store_that_goes_with_its_job_is_no_news(reason: str) -> None:
    me = Identity("run", "a", "host", "10.0.0.1", workers=1)
    state = replace(begin(me, Policy(NodeRange(1, 1)), (29500,), 0.0), lease=7, workers=Workers.RUNNING)
    state, _ = step(state, GoodbyeAsked(1.0, 15, reason))
    _, effects = step(state, Disconnected(2.0, "it closed the connection"))
    (note,) = [effect for effect in effects if isinstance(effect, Note) and effect.event == "store lost"]
    assert bool(note.text) == (not reason)
