"""
Nothing is lost, nothing is taken in twice: both halves of the protocol in a made-up world.

Lines break and lose what is under way, learners come back from their last checkpoint, workers die and are replaced.
A save is at first in the memory of the learner's node only, and then committed: the log in the storage has it. A
learner that comes back on that node goes on from memory, on another one from what is committed. What a learner knows is
in its checkpoint, the list of what it took in included, so that list is what it has trained on.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lattice.rl.intake import Intake, Verdict
from lattice.rl.outbox import Outbox
from lattice.rl.pending_saves import PendingSave, PendingSaves

CREDIT, LIMIT = 3, 8


@dataclass(frozen=True)
class Save:
    """A checkpoint."""

    number: int
    intake: dict[str, Any]
    trained: list[tuple[str, int]]


@dataclass
class Storage:
    """Where saves are: in the memory of the learner's node, and then in the log."""

    memory: list[Save] = field(default_factory=list)
    committed: Save | None = None

    def commit(self) -> None:
        if self.memory:
            self.committed = self.memory.pop(0)


class Learner:
    """Takes in, and restores all of it from a checkpoint."""

    def __init__(self, lives: int, storage: Storage, from_memory: bool) -> None:
        self.session = f"life {lives}"
        self.intake = Intake()
        self.trained: list[tuple[str, int]] = []
        self.storage, self.pending, self.saves = storage, PendingSaves(), 0
        storage.memory = storage.memory[-1:] if from_memory else []  # of the others the log will not hear
        source = storage.memory[-1] if storage.memory else storage.committed
        if source is not None:
            self.saves = source.number
            self.intake.restore(source.intake)
            self.trained = list(source.trained)
            self.pending.add(PendingSave(source.number, source.intake, {}))
            self.note_commits()

    def save(self) -> None:
        self.saves += 1
        state = self.intake.state()
        self.storage.memory.append(Save(self.saves, state, list(self.trained)))
        self.pending.add(PendingSave(self.saves, state, {}))

    def note_commits(self) -> None:
        committed = self.storage.committed
        covered = self.pending.take_committed(None if committed is None else committed.number)
        if covered:
            self.intake.saved(covered[-1].intake)

    def hear(self, message: tuple[Any, ...]) -> tuple[Any, ...]:
        match message:
            case ("hello", worker, first):
                return ("welcome", self.session, *self.intake.greet(worker, first))
            case ("trajectory", worker, number):
                if self.intake.hear(worker, number, 0, 0) is Verdict.TAKEN:
                    self.trained.append((worker, number))
                return ("ack", self.session, *self.intake.marks(worker))
        raise AssertionError(message)


@dataclass
class Worker:
    """Produces, sends, and hears; its line holds what is under way in both directions."""

    name: str
    outbox: Outbox[int] = field(default_factory=lambda: Outbox(CREDIT, LIMIT))
    there: list[tuple[Any, ...]] = field(default_factory=list)
    back: list[tuple[Any, ...]] = field(default_factory=list)
    made: int = 0
    forgotten: int = 0

    def produce(self) -> None:
        if not self.outbox.full:
            self.made += 1
            assert self.outbox.put(self.made) == self.made

    def send(self) -> None:
        if not self.outbox.session:
            self.there.append(("hello", self.name, self.outbox.first_number))
        for number, item in self.outbox.to_send():
            assert number == item
            self.there.append(("trajectory", self.name, number))

    def hear(self) -> None:
        if not self.back:
            return
        kind, session, taken, kept = self.back.pop(0)
        if kind == "welcome":
            self.outbox.welcomed(session, taken, kept)
        elif not self.outbox.acknowledged(session, taken, kept):
            self.outbox.lost_sight()
        self.forgotten = self.made - len(self.outbox)

    def cut(self) -> None:
        """Lose all that is under way."""
        self.there.clear()
        self.back.clear()
        self.outbox.lost_sight()


class World:
    """One learner, some workers, and whatever happens to them."""

    def __init__(self) -> None:
        self.lives = 1
        self.storage = Storage()
        self.learner = Learner(1, self.storage, from_memory=False)
        self.workers = [Worker("0.0"), Worker("1.0"), Worker("2.0")]
        self.gone: list[Worker] = []

    def do(self, action: str, who: int) -> None:
        worker = self.workers[who]
        match action:
            case "produce":
                worker.produce()
            case "send":
                worker.send()
            case "arrive":
                if worker.there:
                    worker.back.append(self.learner.hear(worker.there.pop(0)))
            case "arrive twice":  # which ZeroMQ does not do: the learner must not care
                if worker.there:
                    self.learner.hear(worker.there[0])
                    worker.back.append(self.learner.hear(worker.there.pop(0)))
            case "lose":
                if worker.there:
                    worker.there.pop(0)
            case "lose answer":
                if worker.back:
                    worker.back.pop(0)
            case "hear":
                worker.hear()
            case "impatient":
                worker.outbox.lost_sight()
            case "cut":
                worker.cut()
            case "save":
                self.learner.save()
            case "commit":
                self.storage.commit()
            case "hear of commits":
                self.learner.note_commits()
            case "drop a save":  # of which a storage that failed for a while was given a newer one
                self.storage.memory = self.storage.memory[1:] or self.storage.memory
            case "learner dies" | "learner's node dies":
                self.lives += 1
                self.learner = Learner(self.lives, self.storage, action == "learner dies")
                for one in self.workers:
                    one.there.clear()  # they do not know yet: what they hear is of the old life, or nothing
            case "worker dies":
                self.gone.append(worker)
                self.workers[who] = Worker(f"{who}.{len(self.gone)}")
        self.check()

    def check(self) -> None:
        trained = self.learner.trained
        assert len(trained) == len(set(trained)), "trained on twice"
        committed = self.storage.committed.trained if self.storage.committed is not None else []
        for worker in self.workers + self.gone:
            for number in range(1, worker.forgotten + 1):
                assert (worker.name, number) in trained, "forgotten by its worker, and lost"
                assert (worker.name, number) in committed, "forgotten by its worker, and lost with the next node"

    def save_and_commit(self) -> None:
        self.learner.save()
        while self.storage.memory:
            self.storage.commit()
        self.learner.note_commits()

    def settle(self) -> None:
        """Let all faults end, and everything be delivered and saved."""
        for _ in range(20):
            for worker in self.workers:
                worker.outbox.lost_sight()
                for _ in range(2 * LIMIT + 4):
                    worker.send()
                    while worker.there:
                        worker.back.append(self.learner.hear(worker.there.pop(0)))
                    while worker.back:
                        worker.hear()
            self.save_and_commit()
        self.check()
        trained = set(self.learner.trained)
        for worker in self.workers:
            assert {(worker.name, number) for number in range(1, worker.made + 1)} <= trained, "lost"
            assert len(worker.outbox) == 0, "nothing stays for ever"


ACTIONS = ("produce", "send", "arrive", "hear") * 4 + (
    "arrive twice",
    "lose",
    "lose answer",
    "impatient",
    "cut",
    "save",
    "save",
    "commit",
    "commit",
    "hear of commits",
    "hear of commits",
    "drop a save",
    "learner dies",
    "learner's node dies",
    "worker dies",
)


@pytest.mark.parametrize("part", range(4))
def test_in_a_thousand_long_stories_each_trajectory_is_trained_on_once(part: int) -> None:
    for seed in range(part * 250, part * 250 + 250):
        chance, world = random.Random(seed), World()
        try:
            for _ in range(chance.randrange(10, 300)):
                world.do(chance.choice(ACTIONS), chance.randrange(3))
            world.settle()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2)), max_size=150))
def test_whatever_happens_each_trajectory_is_trained_on_once(story: list[tuple[str, int]]) -> None:
    world = World()
    for action, who in story:
        world.do(action, who)
    world.settle()


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2)), max_size=100))
def test_a_learner_without_its_checkpoint_goes_on_with_what_workers_have(story: list[tuple[str, int]]) -> None:
    world = World()
    for action, who in story:
        world.do(action, who)
    world.storage.memory, world.storage.committed = [], None  # somebody has deleted it
    had = {worker.name: worker.forgotten for worker in world.workers}
    world.lives += 1
    world.learner = Learner(world.lives, world.storage, from_memory=False)
    for worker in world.workers:
        worker.cut()
        worker.forgotten = 0
        worker.produce()
    for _ in range(3 * LIMIT):
        for worker in world.workers:
            worker.outbox.lost_sight()
            worker.send()
            worker.back += [world.learner.hear(worker.there.pop(0)) for _ in list(worker.there)]
            while worker.back:
                worker.hear()
            worker.send()
            while worker.there:
                worker.back.append(world.learner.hear(worker.there.pop(0)))
            while worker.back:
                worker.hear()
        world.save_and_commit()
    trained = world.learner.trained
    assert len(trained) == len(set(trained))
    for worker in world.workers:
        assert not len(worker.outbox)
        mine = {number for name, number in trained if name == worker.name}
        assert mine >= set(range(had[worker.name] + 1, worker.made + 1)), "all that was still there"
    assert not world.learner.intake.state()["ledger"]["ahead"]


def test_credits_bound_what_is_under_way() -> None:
    outbox: Outbox[int] = Outbox(2, 5)
    for number in range(1, 6):
        outbox.put(number)
    assert outbox.full
    assert list(outbox.to_send()) == [], "nobody was greeted"
    outbox.welcomed("a", 0, 0)
    assert [number for number, _ in outbox.to_send()] == [1, 2]
    assert list(outbox.to_send()) == []
    assert outbox.acknowledged("a", 1, 0)
    assert [number for number, _ in outbox.to_send()] == [3]
    assert outbox.full, "taken is not kept"
    assert outbox.acknowledged("a", 3, 3)
    assert (outbox.full, len(outbox), outbox.untaken) == (False, 2, 2)
    assert not outbox.acknowledged("b", 5, 5), "another life of the learner"
    outbox.welcomed("b", 3, 3)
    assert [number for number, _ in outbox.to_send()] == [4, 5]


def test_what_is_stale_is_refused_once_and_for_all() -> None:
    intake = Intake(staleness=2)
    assert intake.hear("w", 1, version=5, newest=7) is Verdict.TAKEN
    assert intake.hear("w", 2, version=4, newest=7) is Verdict.STALE
    assert intake.hear("w", 2, version=4, newest=4) is Verdict.DUPLICATE
    assert intake.hear("w", 3, version=0, newest=9, steps=False) is Verdict.TAKEN, "an evaluation"
    assert intake.hear("w", 4, version=9, newest=3) is Verdict.TAKEN, "a learner that came back knows of less"
    assert intake.marks("w") == (4, 0)
    state = intake.state()
    intake.saved(state)
    assert intake.marks("w") == (4, 4)
    again = Intake(2)
    again.restore(state)
    assert (again.marks("w"), again.counts[Verdict.STALE]) == ((4, 0), 1), "it may be in memory only"
