"""Submitting and ending, cut off at every step: run again, and nothing is doubled or left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from lattice.core.spec import NodeRange
from lattice.errors import LatticeError, UsageError
from lattice.jobs.backends import Save, Say, Step, Wanted
from lattice.jobs.control import Control, NotRolledBack
from lattice.jobs.index import Record
from lattice.jobs.job import Code, Job, Role, Sidecar
from lattice.jobs.progress import ENDED, RUNNING, NodeView


class Cut(BaseException):
    """The submitting process is killed here: nothing of it runs any more."""


class World:
    """A place made of two sets, that can be cut off after any number of steps."""

    def __init__(self) -> None:
        self.made: set[str] = set()
        self.running: set[str] = set()
        self.left = 10**6
        self.failing = ""
        self.undeletable = False

    def step(self, what: str, action: Callable[[], None]) -> None:
        if not self.left:
            raise Cut
        self.left -= 1
        if what == self.failing:
            raise LatticeError(f"{what} failed")
        action()

    def delete(self, name: str) -> None:
        self.running.discard(name)
        self.made.discard(name)

    def plan(self, job: Job) -> tuple[Step, ...]:
        return ()

    def submit(self, record: Record, save: Save, say: Say) -> Record:
        record = replace(record, hosts={0: "a", 1: "b"})
        self.step("save", lambda: save(record))
        for index in record.hosts:
            self.step(f"make {index}", partial(self.made.add, f"{record.submission}/{index}"))
        for index in record.hosts:
            self.step(f"start {index}", partial(self.running.add, f"{record.submission}/{index}"))
        return record

    def look(self, record: Record) -> list[NodeView]:
        alive = [f"{record.submission}/{index}" in self.running for index in record.hosts]
        return [NodeView(i, state=RUNNING if lives else ENDED, status=143) for i, lives in enumerate(alive)]

    def logs(self, record: Record, wanted: Wanted, *, follow: bool) -> Iterator[tuple[int, bytes]]:
        return iter(())

    def scale(self, record: Record, role: Role, nodes: int, save: Save, say: Say) -> Record:
        return record

    def kill(self, record: Record, grace: float, say: Say) -> list[NodeView]:
        for index in record.hosts:
            self.step(f"stop {index}", partial(self.running.discard, f"{record.submission}/{index}"))
        return self.look(record)

    def remove(self, record: Record, say: Say, *, anew: bool = False) -> list[str]:
        if self.undeletable:
            return ["a thing"]
        for index in record.hosts:
            self.step(f"remove {index}", partial(self.delete, f"{record.submission}/{index}"))
        return []


JOB = Job("j", "local", NodeRange(2, 2), Code("train.py"))
OTHER = replace(JOB, arguments=("other",))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def control(world: World, tmp_path: Path) -> Control:
    return Control(tmp_path, lambda text: None, lambda place: world)


def test_a_submission_that_is_cut_off_anywhere_is_completed_by_the_next(world: World, control: Control) -> None:
    for steps in range(20):
        world.left = steps
        try:
            control.submit(JOB)
            cut = False
        except Cut:
            cut = True
        world.left = 10**6
        control.submit(JOB)
        assert len(world.made) == len(world.running) == 2, f"cut off after {steps} steps"
        control.kill("j", 0)
        control.forget("j")
        assert not world.made and not world.running
        if not cut:
            return
    raise AssertionError("it never ended")


def test_a_submission_that_is_cut_off_anywhere_can_be_killed(world: World, control: Control) -> None:
    for steps in range(20):
        world.left = steps
        try:
            control.submit(JOB)
            cut = False
        except Cut:
            cut = True
        world.left = 10**6
        if control.names():
            control.kill("j", 0)
            control.forget("j")
        assert not world.made and not world.running, f"cut off after {steps} steps"
        if not cut:
            return
    raise AssertionError("it never ended")


def test_a_kill_that_is_cut_off_anywhere_is_completed_by_the_next(world: World, control: Control) -> None:
    for steps in range(20):
        control.submit(JOB)
        world.left = steps
        try:
            control.kill("j", 0)
            cut = False
        except Cut:
            cut = True
        world.left = 10**6
        assert control.kill("j", 0).state == "killed"
        assert not world.running
        control.forget("j")
        if not cut:
            return
    raise AssertionError("it never ended")


@pytest.mark.parametrize("failing", ["make 0", "make 1", "start 0", "start 1"])
def test_a_failure_half_way_is_rolled_back(world: World, control: Control, failing: str) -> None:
    world.failing = failing
    with pytest.raises(LatticeError, match=f"{failing} failed"):
        control.submit(JOB)
    assert not world.made and not world.running and not control.names()
    world.failing = ""
    control.submit(JOB)


def test_what_cannot_be_rolled_back_is_told_and_remembered(world: World, control: Control) -> None:
    world.failing, world.undeletable = "start 1", True
    with pytest.raises(NotRolledBack, match=r"start 1 failed(.|\n)*lattice kill j(.|\n)*a thing"):
        control.submit(JOB)
    world.failing, world.undeletable = "", False
    assert control.names() == ["j"]
    control.kill("j", 0)
    control.forget("j")
    assert not world.made and not world.running


def test_half_a_submission_of_another_job_is_not_taken_for_this_one(world: World, control: Control) -> None:
    world.left = 3
    with pytest.raises(Cut):
        control.submit(JOB)
    world.left = 10**6
    with pytest.raises(UsageError, match="half submitted"):
        control.submit(OTHER)
    control.kill("j", 0)
    control.submit(OTHER)
    assert len(world.running) == 2


def test_one_command_at_a_time(world: World, control: Control, tmp_path: Path) -> None:
    other = Control(tmp_path, lambda text: None, lambda place: world)
    inside: list[str] = []

    class Nosy(World):
        def submit(self, record: Record, save: Save, say: Say) -> Record:
            try:
                other.kill("j", 0)
            except UsageError as error:
                inside.append(str(error))
            return super().submit(record, save, say)

    nosy = Nosy()
    Control(tmp_path, lambda text: None, lambda place: nosy).submit(JOB)
    assert inside == ["another command changes the job 'j' at the moment; wait for its end"]


def test_a_job_that_has_ended_makes_way_for_the_next_of_its_name(world: World, control: Control) -> None:
    control.submit(JOB)
    first = set(world.made)
    control.kill("j", 0)
    control.submit(OTHER)
    assert len(world.made) == len(world.running) == 2 and not world.made & first


def test_what_is_left_of_the_last_job_of_a_name_keeps_it(world: World, control: Control) -> None:
    first = control.submit(JOB)
    control.kill("j", 0)
    world.undeletable = True
    with pytest.raises(LatticeError, match=r"a thing(.|\n)*lattice forget --force j"):
        control.submit(OTHER)
    assert control.record("j").submission == first.submission
    control.forget("j", force=True)
    control.submit(OTHER)


def test_only_sidecars_that_there_are_can_be_read(tmp_path: Path) -> None:
    asked: list[Wanted] = []

    class Asked(World):
        def logs(self, record: Record, wanted: Wanted, *, follow: bool) -> Iterator[tuple[int, bytes]]:
            asked.append(wanted)
            return iter(())

    place = Asked()
    control = Control(tmp_path, lambda text: None, lambda _: place)
    actor = Role("actor", NodeRange(1, 1), script="act.py", sidecars=(Sidecar("game", "me/game"),))
    learner = Role("learner", NodeRange(1, 1), script="learn.py")
    control.submit(replace(JOB, place="kubernetes", roles=(learner, actor)))
    with pytest.raises(UsageError, match="j has no sidecar 'gmae'; there are game"):
        control.logs("j", container="gmae", follow=True)
    with pytest.raises(UsageError, match="j has no sidecar 'game'; there are none"):
        control.logs("j", container="game", role="learner", follow=True)
    for container in ("game", "node", ""):
        control.logs("j", container=container, follow=False)
    assert [one.nodes for one in asked] == [{1}, {0, 1}, None]


def test_only_what_has_ended_is_forgotten(control: Control) -> None:
    control.submit(JOB)
    with pytest.raises(UsageError, match="end it first: lattice kill j"):
        control.forget("j")
    control.kill("j", 0)
    control.forget("j")
    assert control.names() == []
