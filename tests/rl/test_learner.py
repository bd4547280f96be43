"""A learner and its workers in one process: what is told to whom, and what is refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lattice.rl import Goal, Learned, Learner, LearnerSettings, OnPolicyQueue, ReplayBuffer, Trajectory, desk, saving
from lattice.rl.interfaces import Arrays
from lattice.rl.keys import Keys
from lattice.rl.messages import trajectory_message
from lattice.rl.transport import Caller
from lattice.rl.wire import Message, decode, encode
from tests.rl.race import KEY, metrics
from tests.waiting import eventually, pass_time, patience


class Counting:
    """Counts its updates; its parameters are that count."""

    def __init__(self) -> None:
        self.updates = 0
        self.gate = threading.Event()
        self.gate.set()

    def update(self, batch: Arrays) -> Mapping[str, float]:
        self.gate.wait(patience(20))
        self.updates += 1
        return {"rewards": float(batch["reward"].sum())}

    def parameters(self) -> Arrays:
        return {"updates": np.array([self.updates], np.float32)}

    def state(self) -> Mapping[str, Any]:
        return {"updates": self.updates}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.updates = state["updates"]


class Puppet:
    """A worker whose every word is chosen by the test."""

    def __init__(self, port: int, name: str = "puppet") -> None:
        self.name = name
        self._caller = Caller(Keys.of(KEY))
        self._caller.call(f"127.0.0.1:{port}")

    def say(self, kind: str, **fields: Any) -> Message:
        """Say something, and give the answer."""
        self.tell([bytes(frame) for frame in encode(Message(kind, {"worker": self.name, **fields}))])
        return self.hear()

    def send(self, trajectory: Trajectory) -> Message:
        """Send a trajectory, and give the answer."""
        self.tell([bytes(frame) for frame in encode(trajectory_message(trajectory))])
        return self.hear()

    def tell_kind(self, kind: str) -> None:
        """Say what is not answered."""
        self.tell([bytes(frame) for frame in encode(Message(kind, {"worker": self.name}))])

    def tell(self, frames: list[bytes]) -> None:
        eventually(lambda: self._caller.send(frames))

    def hear(self) -> Message:
        frames = eventually(self._caller.receive)
        assert frames is not None
        return decode(frames)

    def close(self) -> None:
        self._caller.close(1.0)


@contextmanager
def learning(learner: Learner) -> Iterator[Callable[[], Learned]]:
    """Run a learner in a thread; gives what waits for its end."""
    found: list[Learned] = []
    thread = threading.Thread(target=lambda: found.append(learner.run()))
    thread.start()

    def end() -> Learned:
        thread.join(patience(30))
        return found[0]

    try:
        yield end
    finally:
        learner.goal = Goal(updates=0)
        thread.join(patience(30))
        assert not thread.is_alive()


def made(number: int, version: int = 0, steps: int = 4, **changed: Any) -> Trajectory:
    arrays = {"observation": np.zeros((steps + 1, 2), np.float32), "reward": np.ones(steps, np.float32)}
    episode = {"reward": float(steps), "length": steps}
    return Trajectory("puppet", number, version, {**arrays, **changed}, steps, episode)


def settings(**changed: Any) -> LearnerSettings:
    return LearnerSettings(
        **{"key": KEY, "host": "127.0.0.1", "port": 0, "metrics_every": 0.1, "farewell": 0.3, **changed}
    )


def test_newer_parameters_come_with_the_answer_and_are_not_sent_twice() -> None:
    learner = Learner(Counting(), OnPolicyQueue(1), Goal(updates=1000), settings())
    with learning(learner):
        puppet = Puppet(learner.port)
        welcome = puppet.say("hello", host="here", first=1)
        assert (welcome.kind, welcome.fields["taken"], welcome.arrays["updates"].tolist()) == ("welcome", 0, [0.0])
        assert not puppet.send(made(1)).arrays, "it has them; the update comes after the answer"
        eventually(lambda: learner.counters.updates == 1)
        answer = puppet.say("alive")
        assert (answer.fields["taken"], answer.fields["kept"], answer.fields["version"]) == (1, 0, 1)
        assert answer.arrays["updates"].tolist() == [1.0]
        assert not puppet.say("alive").arrays
        puppet.close()


def test_workers_forget_nothing_that_no_checkpoint_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    takes = threading.Event()
    save = saving.Saving.save
    monkeypatch.setattr(saving.Saving, "save", lambda *given: takes.is_set() and save(*given))
    learner = Learner(
        Counting(),
        OnPolicyQueue(1),
        Goal(updates=1000),
        settings(results=tmp_path, checkpoint=None, checkpoint_every=0.0),
    )
    with learning(learner):
        puppet = Puppet(learner.port)
        puppet.say("hello", host="here", first=1)
        puppet.send(made(1))
        eventually(lambda: learner.counters.saves > 1)
        answers = [puppet.say("alive").fields for _ in range(5)]
        assert {(answer["taken"], answer["kept"]) for answer in answers} == {(1, 0)}
        takes.set()
        eventually(lambda: puppet.say("alive").fields["kept"] == 1)
        puppet.close()


def test_what_is_stale_is_refused_and_counted(tmp_path: Path) -> None:
    learner = Learner(Counting(), OnPolicyQueue(1), Goal(updates=4), settings(staleness=1, results=tmp_path))
    with learning(learner) as end:
        puppet = Puppet(learner.port)
        puppet.say("hello", host="here", first=1)
        for number in (1, 2, 3):
            puppet.send(made(number, version=number - 1))
            eventually(lambda number=number: learner.counters.updates == number)  # type: ignore[misc]
        assert puppet.send(made(4, version=1)).fields["taken"] == 4, "it need not come again"
        assert learner.counters.updates == 3
        puppet.send(made(5, version=2))
        learned = end()
        puppet.close()
    assert (learned.stale, learned.updates, learned.episodes, learned.env_steps) == (1, 4, 4, 16)
    assert metrics(tmp_path)[-1]["stale"] == 1


def test_nothing_is_taken_in_while_the_queue_is_full() -> None:
    algorithm = Counting()
    algorithm.gate.clear()
    learner = Learner(algorithm, OnPolicyQueue(1, capacity=2), Goal(updates=1000), settings())
    with learning(learner):
        puppet = Puppet(learner.port)
        puppet.say("hello", host="here", first=1)
        for number in range(1, 9):
            puppet.tell([bytes(frame) for frame in encode(trajectory_message(made(number)))])
        try:
            eventually(lambda: learner.counters.trajectories >= 1)
            pass_time(0.3)
            taken = learner.counters.trajectories
        finally:
            algorithm.gate.set()
        eventually(lambda: learner.counters.updates == 8)
        puppet.close()
    assert taken <= 2


def test_a_fixed_ratio_holds_workers_back() -> None:
    learner = Learner(Counting(), ReplayBuffer(1000, 8, warm_up=8), Goal(env_steps=80), settings(updates_per_step=0.5))
    with learning(learner) as end:
        puppet = Puppet(learner.port)
        puppet.say("hello", host="here", first=1)
        for number in range(1, 21):
            assert puppet.send(made(number)).fields["taken"] == number
            assert learner.counters.updates <= learner.counters.env_steps * 0.5
            assert learner.counters.updates >= (learner.counters.env_steps - 8) * 0.5 - 2 or number < 3
        learned = end()
        puppet.close()
    assert learned.updates in range(36, 41)


def test_hostile_messages_are_counted_and_harm_nobody(tmp_path: Path) -> None:
    learner = Learner(Counting(), ReplayBuffer(100, 1), Goal(env_steps=8), settings(results=tmp_path))
    with learning(learner) as end:
        puppet = Puppet(learner.port)
        puppet.say("hello", host="here", first=1)
        nonsense: list[list[bytes]] = [
            [b""],
            [b"\x80\x04N."],
            [json.dumps({"kind": "trajectory", "arrays": []}).encode()],
            [json.dumps({"kind": "trajectory", "worker": "x" * 1000, "number": 1, "arrays": []}).encode()],
            [json.dumps({"kind": "trajectory", "worker": "puppet", "number": -1, "arrays": []}).encode()],
            [json.dumps({"kind": "trajectory", "worker": "puppet", "number": 1e300, "arrays": []}).encode()],
            [json.dumps({"kind": "stop everything", "worker": "puppet", "arrays": []}).encode()],
            [json.dumps({"kind": "hello", "worker": "", "host": "", "first": 1, "arrays": []}).encode()],
            [json.dumps({"kind": "hello", "worker": "other", "host": 3, "first": 1, "arrays": []}).encode()],
        ]
        for frames in nonsense:
            puppet.tell(frames)
        assert puppet.send(made(1)).fields["taken"] == 1
        unfit = puppet.send(made(2, observation=np.zeros((5, 7), np.float32)))
        assert unfit.fields["taken"] == 2, "another shape: it would be sent for ever if it were not answered"
        assert puppet.send(made(3, reward=np.full(4, np.nan, np.float32))).fields["taken"] == 3
        assert puppet.send(made(3)).fields["taken"] == 3, "once refused, always refused"
        assert puppet.send(made(4)).kind in ("ack", "done")
        learned = end()
        puppet.close()
    assert (learned.env_steps, learned.episodes, learned.duplicates) == (8, 2, 1)
    last = metrics(tmp_path)[-1]
    assert (last["rejected"], last["unfit"], last["taken"]) == (len(nonsense), 2, 2)


def test_the_best_policy_is_the_one_that_was_evaluated(tmp_path: Path) -> None:
    learner = Learner(
        Counting(),
        OnPolicyQueue(1),
        Goal(reward=9.0),
        settings(results=tmp_path, evaluate_every=4, evaluation_episodes=2, evaluation_seed=77),
    )
    with learning(learner) as end:
        puppet = Puppet(learner.port)
        puppet.say("hello", host="here", first=1)
        number, orders = 0, []
        for rewards in ([1.0, 2.0], [5.0, 6.0], [2.0, 3.0], [9.0, 9.0]):
            order = None
            while order is None:
                number += 1
                answer = puppet.send(made(number, version=learner.counters.version))
                order = answer.mapping("evaluate")
            assert (order["episodes"], order["seed"]) == (2, 77)
            orders.append((answer.fields["version"], answer.arrays["updates"].tolist()))
            number += 1
            found = {"order": order["order"], "rewards": rewards, "lengths": [1, 1]}
            puppet.send(Trajectory("puppet", number, answer.fields["version"], {}, 0, None, found))
        learned = end()
        puppet.close()
    assert (learned.reason, learned.best) == ("reward 9 of 9", 9.0)
    best = {path.name: np.load(path)["updates"].tolist() for path in tmp_path.glob("checkpoints/rwd_*.npz")}
    wanted = {f"rwd_{reward}_id_{version}.npz": [float(version)] for reward, (version, _) in zip(
        ("1.50", "5.50", "9.00"), (orders[0], orders[1], orders[3]), strict=True)}  # fmt: skip
    assert best == wanted
    assert [parameters for _, parameters in orders] == [[float(version)] for version, _ in orders]


def test_whoever_was_to_evaluate_and_is_gone_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "SILENT", 0.5)
    learner = Learner(Counting(), OnPolicyQueue(1), Goal(reward=1.0), settings(results=tmp_path, evaluate_every=4))
    with learning(learner) as end:
        puppet = Puppet(learner.port)
        puppet.say("hello", host="here", first=1)
        number, order = 0, None
        while order is None:
            number += 1
            order = puppet.send(made(number, version=learner.counters.version)).mapping("evaluate")
        puppet.close()  # as if it had been killed
        eventually(lambda: metrics(tmp_path)[-1:] and metrics(tmp_path)[-1]["workers"] == 0)
        other = Puppet(learner.port, "other")
        other.say("hello", host="there", first=1)
        again, number = None, 0
        while again is None:
            number += 1
            sent = made(number, version=learner.counters.version)
            again = other.send(replace(sent, worker="other")).mapping("evaluate")
        assert again["order"] != order["order"]
        for asked in (order, again):
            number += 1
            found = {"order": asked["order"], "rewards": [2.0], "lengths": [1]}
            other.send(Trajectory("other", number, 0, {}, 0, None, found))
        assert end().best == 2.0
        other.close()
    assert len(list(tmp_path.glob("checkpoints/rwd_*.npz"))) == 1, "whose policy the first was is not known any more"


def test_a_goal_is_reached_by_whatever_comes_first() -> None:
    goal = Goal(env_steps=10, updates=20, seconds=30.0, reward=1.0)
    assert goal.reached(9, 19, 29.0, 0.5) == ""
    assert goal.reached(9, 19, 29.0, None) == ""
    assert goal.reached(10, 0, 0.0, None) == "10 steps of 10"
    assert goal.reached(0, 20, 0.0, None) == "20 updates of 20"
    assert goal.reached(0, 0, 30.0, None) == "30.0s of 30s"
    assert goal.reached(0, 0, 0.0, 1.0) == "reward 1 of 1"
    assert Goal().reached(10**9, 10**9, 1e9, 1e9) == ""


def test_a_goal_of_time_counts_all_lives(tmp_path: Path) -> None:
    def life(seconds: float) -> Learned:
        return Learner(Counting(), OnPolicyQueue(1), Goal(seconds=seconds), settings(results=tmp_path)).run()

    assert life(0.3).lives == 1
    second = life(0.6)
    assert (second.lives, second.finished) == (2, True)
    assert life(0.5).updates == 0, "reached before it begins"


@pytest.mark.parametrize("wrong", ["", "short"])
def test_a_learner_without_a_key_does_not_listen(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from lattice.errors import UsageError

    for name in ("LATTICE_RL_KEY", "LATTICE_RL_KEY_FILE", "LATTICE_JOB_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match="key"):
        Learner(Counting(), OnPolicyQueue(1), Goal(), settings(key=wrong))
