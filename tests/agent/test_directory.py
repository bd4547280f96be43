"""A directory by itself: what it tells its agent, and when; together with agents it is tested among the faults."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lattice.agent import directory
from lattice.agent.directory import Directory
from lattice.agent.serving import RunStore
from lattice.agent.starting import NOBODY
from lattice.core.directory import EndRecord, JobKeys
from lattice.core.events import Event, GoodbyeAsked, Ticked
from lattice.core.keyspace import Put, Transaction
from lattice.core.roles import FILE
from lattice.core.spec import AgentSpec, Command, JobSpec, NodeRange, Policy, StoreSpec
from lattice.stores import secret
from lattice.stores.memory import MemoryStore
from lattice.stores.served_server import StoreServer
from tests.etcd_server import free_ports
from tests.waiting import eventually, pass_time

KEYS = JobKeys("j")
TTL = 1.0
Make = Callable[..., Directory]


class Place:
    """A served store, and what directories that use it have said and put."""

    def __init__(self) -> None:
        self.spec = StoreSpec("embedded", (("127.0.0.1", free_ports(1)[0]),), request_timeout=0.5)
        self.store = MemoryStore()
        self.server: StoreServer | None = None
        self.events: list[Event] = []
        self.said: list[str] = []

    def serve(self) -> None:
        """Begin to answer."""
        self.server = StoreServer(self.store, *self.spec.endpoints[0], secret(self.spec, "j"))

    def put(self, key: str, value: bytes) -> None:
        """Write something as somebody else."""
        self.store.commit(Transaction((Put(key, value),)))

    def keys(self, prefix: str) -> list[str]:
        """Give what is there."""
        return [item.key for item in self.store.read(prefix, prefix=True).items]

    def goodbyes(self) -> list[GoodbyeAsked]:
        """Give the goodbyes that were asked for."""
        return [event for event in self.events if isinstance(event, GoodbyeAsked)]


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    if made.server is not None:
        made.server.close()
    made.store.close()


@pytest.fixture
def make(place: Place) -> Iterator[Make]:
    """Make directories of a learner's agents."""
    made: list[Directory] = []

    def one(incarnation: str = "mine", role: str = "learner", run: str = "learners") -> Directory:
        policy = Policy(NodeRange(1, 1), lease_ttl=TTL)
        job = JobSpec("j", ("learner", "worker"))
        spec = AgentSpec(run, Command(("true",), "true"), policy, 2, role=role, store=place.spec, job=job)
        there = RunStore(place.store, place.spec)
        made.append(Directory(spec, there, incarnation, place.events.append, place.said.append))
        return made[-1]

    yield one
    for each in made:
        each.close()


def test_who_has_started_nothing_is_there_but_not_listed(place: Place, make: Make) -> None:
    place.serve()
    mine = make()
    mine.start()
    eventually(lambda: place.keys(KEYS.agents) == [KEYS.agent("mine")])
    assert place.keys(KEYS.roles) == []
    variables = mine.variables(NOBODY, 0)
    eventually(lambda: place.keys(KEYS.roles) == [KEYS.entry("learner", "mine")])
    assert variables["LATTICE_PEERS_LEARNER"].count(",") == 1 and variables["LATTICE_PEERS_WORKER"] == ""
    mine.close()
    assert place.keys("/lattice/") == []
    assert not Path(variables[FILE]).parent.exists()


def test_the_file_is_there_before_the_store(place: Place, make: Make) -> None:
    mine = make()
    variables = mine.variables(NOBODY, 0)
    assert json.loads(Path(variables[FILE]).read_text()) == {"learner": [], "worker": []}


def test_workers_wait_until_it_is_known_who_is_there(place: Place, make: Make) -> None:
    mine = make()
    assert mine.waits
    mine.start()
    pass_time(0.3)
    assert mine.waits
    place.serve()
    eventually(lambda: [event for event in place.events if isinstance(event, Ticked)])
    assert not mine.waits


def test_workers_do_not_wait_for_ever(place: Place, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "PATIENCE", 0.2)
    mine = make()
    mine.start()
    pass_time(1)
    assert mine.waits, "the time begins when they could be started"
    eventually(lambda: not mine.waits)
    assert [type(event) for event in place.events] == [Ticked]


def test_who_finds_the_end_is_told_to_leave_before_any_worker_starts(place: Place, make: Make) -> None:
    place.serve()
    place.put(KEYS.end, EndRecord("learner", "learners", 3, "because").encode())
    mine = make()
    mine.start()
    eventually(lambda: not mine.waits)
    assert [type(event) for event in place.events] == [GoodbyeAsked, Ticked]
    assert place.goodbyes()[0].reason == "the job ended: role learner failed: because"
    assert place.keys(KEYS.agents) == []


@pytest.mark.parametrize(("role", "run"), [("worker", "workers"), ("learner", "others, as of group: each")])
def test_another_run_leaves_at_once_and_is_no_longer_waited_for(role: str, run: str, place: Place, make: Make) -> None:
    place.serve()
    mine = make(role=role, run=run)
    mine.start()
    eventually(lambda: place.keys(KEYS.agents))
    place.put(KEYS.end, EndRecord("learner", "learners", 0).encode())
    eventually(place.goodbyes)
    eventually(lambda: not place.keys(KEYS.agents))


@pytest.mark.parametrize("role", ["learner", "of the same group"])
def test_who_had_a_part_in_the_run_that_ended_has_time_to_see_its_outcome(role: str, place: Place, make: Make) -> None:
    place.serve()
    mine = make(role=role)
    mine.start()
    eventually(lambda: place.keys(KEYS.agents))
    before = time.monotonic()
    place.put(KEYS.end, EndRecord("learner", "learners", 0).encode())
    eventually(mine.heard.is_set)
    assert not place.goodbyes() and place.keys(KEYS.agents)
    eventually(place.goodbyes)
    assert place.goodbyes()[0].at - before >= TTL


def test_the_first_end_holds(place: Place, make: Make) -> None:
    place.serve()
    one, two = make("one"), make("two", role="worker", run="workers")
    for each in (one, two):
        each.start()
        eventually(lambda each=each: not each.waits)  # type: ignore[misc]
    first, second = EndRecord("learner", "learners", 0), EndRecord("worker", "workers", 5)
    assert one.tell(first, within=30)
    assert two.tell(second, within=30)
    eventually(lambda: two.end == first)
    assert one.end == first


def test_an_end_that_could_not_be_told_is_told_when_the_store_is_back(place: Place, make: Make) -> None:
    mine = make()
    mine.start()
    assert not mine.tell(EndRecord("learner", "learners", 0), within=0.2)
    place.serve()
    eventually(lambda: KEYS.end in place.keys(KEYS.root))
    assert mine.end == EndRecord("learner", "learners", 0)
