"""Workers are told to forget only what is in a committed checkpoint: one that the log in the storage has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lattice.checkpoint import Checkpointer
from lattice.rl import Goal, Learner, LearnerSettings, OnPolicyQueue
from lattice.rl.pending_saves import PendingSave, PendingSaves
from lattice.rl.saving import Saving
from lattice.rl.wire import decode
from tests.checkpoint.looking import steps
from tests.rl.race import rewards
from tests.rl.test_learner import Counting, Puppet, learning, made, settings
from tests.waiting import eventually, patience


@pytest.fixture
def blocked(tmp_path: Path) -> Iterator[Path]:
    """A place for checkpoints that cannot be written to until what it leads to is there."""
    (tmp_path / "state").symlink_to(tmp_path / "elsewhere")
    yield tmp_path / "state"
    (tmp_path / "elsewhere").mkdir(exist_ok=True)  # else the writer of a test that failed would go on trying


def learner_at(place: Path, goal: int = 1000, **changed: Any) -> Learner:
    told = {"results": place.parent, "checkpoint": place, "checkpoint_every": 0.1, **changed}
    return Learner(Counting(), OnPolicyQueue(1), Goal(updates=goal), settings(**told))


def marks(puppet: Puppet) -> tuple[int, int]:
    fields = puppet.say("alive").fields
    return fields["taken"], fields["kept"]


def test_nothing_is_forgotten_before_the_log_has_it(blocked: Path) -> None:
    learner = learner_at(blocked)
    with learning(learner), closing(Puppet(learner.port)) as puppet:
        puppet.say("hello", host="here", first=1)
        puppet.send(made(1))
        eventually(lambda: learner.counters.saves > 3)
        assert [marks(puppet) for _ in range(5)] == [(1, 0)] * 5
        assert not rewards(blocked.parent), "what the results say must not be taken back"
        blocked.readlink().mkdir()
        eventually(lambda: marks(puppet) == (1, 1))
        assert steps(str(blocked))
        eventually(lambda: [row["number"] for row in rewards(blocked.parent)] == [1])


def test_a_refused_checkpoint_makes_no_worker_forget(tmp_path: Path) -> None:
    learner = learner_at(tmp_path / "state")
    with closing(Puppet(learner.port)) as puppet:
        with learning(learner) as end, Checkpointer(tmp_path / "state") as later:
            puppet.say("hello", host="here", first=1)
            puppet.send(made(1))
            eventually(lambda: marks(puppet) == (1, 1))
            later.restore(None)  # the next learner: from here on the log refuses this one
            puppet.send(made(2))
            saves = learner.counters.saves
            eventually(lambda: learner.counters.saves > saves + 3)
            assert later.wait(patience(30))
            eventually(lambda: marks(puppet) == (2, 1))  # what was said before may still be on the line
            assert [marks(puppet) for _ in range(5)] == [(2, 1)] * 5
            learner.goal = Goal(updates=1)
            assert end().finished
        said = [decode(frames).kind for frames in iter(puppet._caller.receive, None)]
        assert "done" not in said, "it is not dismissed: the next learner needs what it has"


def test_a_full_worker_gets_room_by_one_save_when_it_is_committed(blocked: Path) -> None:
    learner = learner_at(blocked, checkpoint_every=1000.0)
    with (
        learning(learner),
        closing(Puppet(learner.port)) as puppet,
        closing(Puppet(learner.port, "other")) as other,
    ):
        for one in (puppet, other):
            one.say("hello", host="here", first=1, full=False)
        puppet.send(made(1))
        puppet.tell_kind("full")
        eventually(lambda: learner.counters.saves == 1)
        other.tell_kind("full")
        eventually(lambda: learner._desk.wants_room)
        began = learner.counters.seconds
        eventually(lambda: learner.counters.seconds > began + 2.5)
        assert marks(puppet) == (1, 0), "it is answered meanwhile"
        assert learner.counters.saves == 1, "another save would bring room no sooner"
        blocked.readlink().mkdir()
        eventually(lambda: marks(puppet) == (1, 1))
        eventually(lambda: learner.counters.saves == 2)  # of which the other one was in need


def test_workers_are_dismissed_when_the_last_checkpoint_is_committed(blocked: Path) -> None:
    learner = learner_at(blocked, goal=2, checkpoint_every=1000.0, farewell=10.0)
    with learning(learner) as end, closing(Puppet(learner.port)) as puppet:
        puppet.say("hello", host="here", first=1)
        puppet.send(made(1))
        puppet.send(made(2))
        eventually(lambda: learner.counters.saves == 1)
        eventually(lambda: learner._pending)
        assert puppet._caller.receive() is None
        blocked.readlink().mkdir()
        kinds = [puppet.hear().kind, puppet.hear().kind]
        assert kinds == ["ack", "done"] and steps(str(blocked)) == [1]
        puppet.tell_kind("bye")
        assert end().finished


class InMemory:
    """Checkpoints of which the test says when the log has them."""

    def __init__(self) -> None:
        self.saved: list[tuple[int, Any]] = []
        self.committed_step: int | None = None

    def save(self, step: int, state: Any, metric: float | None = None) -> bool:
        self.saved.append((step, state))
        return True

    def restore(self, default: Any) -> tuple[Any, int]:
        return (self.saved[-1][1], self.saved[-1][0]) if self.saved else (default, 0)

    def wait(self, timeout: float | None = None) -> bool:
        return True

    def close(self) -> None:
        pass


def test_what_was_restored_from_memory_is_kept_once_it_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = InMemory()

    def saving(_: LearnerSettings) -> Saving:
        return Saving(memory)

    monkeypatch.setattr(Saving, "of", staticmethod(saving))
    first = learner_at(tmp_path / "state", checkpoint_every=1000.0)
    with learning(first), closing(Puppet(first.port)) as puppet:
        puppet.say("hello", host="here", first=1)
        puppet.send(made(1))
        eventually(lambda: first.counters.updates == 1)
    assert not rewards(tmp_path)
    second = learner_at(tmp_path / "state", checkpoint_every=1000.0)
    with learning(second), closing(Puppet(second.port)) as puppet:
        puppet.say("hello", host="here", first=1)
        assert marks(puppet) == (1, 0), "it need not be sent again, and not be forgotten"
        memory.committed_step = memory.saved[-1][0]
        eventually(lambda: marks(puppet) == (1, 1))
        eventually(lambda: [row["number"] for row in rewards(tmp_path)] == [1])


def test_a_committed_save_covers_those_before_it() -> None:
    pending = PendingSaves()
    assert not pending and pending.take_committed(5) == []
    saves = [PendingSave(number, {}, {f"{number:08}": b"%d" % number}) for number in (3, 4, 5)]
    for save in saves:
        pending.add(save)
    assert pending.take_committed(None) == pending.take_committed(2) == []
    assert pending.take_committed(4) == saves[:2] and pending
    assert pending.rewards() == {"00000005": b"5"}
    assert pending.take_committed(7) == saves[2:] and not pending
