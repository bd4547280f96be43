"""A worker, and a learner whose every word is chosen by the test."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from lattice.rl import Worked, Worker, WorkerSettings
from lattice.rl.keys import Keys
from lattice.rl.transport import Listener, NoPort
from lattice.rl.wire import Message, decode, encode
from tests.rl.race import KEY, Numbered, Same
from tests.waiting import eventually, patience


class Puppet:
    """A learner that says what it is told to."""

    def __init__(self) -> None:
        self.listener = Listener(Keys.of(KEY), "127.0.0.1")
        self.line = b""
        self.waiting: list[Message] = []

    def hear(self, kind: str, session: str = "") -> Message:
        """Wait for a message of a kind; others before it are passed over, and acknowledged in a session if given."""

        def heard() -> Message | None:
            for line, frames in self.listener.receive(0.01):
                self.line = line
                self.waiting.append(decode([bytes(frame) for frame in frames]))
            while self.waiting:
                if (message := self.waiting.pop(0)).kind == kind:
                    return message
                if session and message.kind == "trajectory":
                    self.say("ack", session, message.count("number"))
            return None

        found = eventually(heard)
        assert found is not None
        return found

    def say(self, kind: str, session: str, taken: int, kept: int = 0, version: int | None = None, **more: Any) -> None:
        """Say how far we are, with parameters if a version is given."""
        arrays = {} if version is None else {"updates": np.array([version], np.float32)}
        fields = {"session": session, "taken": taken, "kept": kept, "version": version or 0, **more}
        self.listener.send(self.line, [bytes(frame) for frame in encode(Message(kind, fields, arrays))])


@contextmanager
def working(
    environment: Callable[[], Any] = lambda: Numbered(0.0), **changed: Any
) -> Iterator[tuple[Puppet, Callable[[], Worked]]]:
    puppet, found = Puppet(), list[Worked]()
    told = {"address": f"127.0.0.1:{puppet.listener.port}", "key": KEY, "patience": 0.5, "credit": 2, **changed}
    worker = Worker(environment, Same, WorkerSettings(**told))
    thread = threading.Thread(target=lambda: found.append(worker.run()))
    thread.start()

    def end() -> Worked:
        thread.join(patience(30))
        return found[0]

    try:
        with puppet.listener:
            yield puppet, end
    finally:
        worker._done = worker._done or "the test has failed"
        thread.join(patience(30))


def test_what_was_lost_on_the_way_is_sent_again_though_the_learner_answers() -> None:
    with working() as (learner, end):
        assert learner.hear("hello").fields["first"] == 1
        learner.say("welcome", "one", 0, version=0)
        assert learner.hear("trajectory").fields["number"] == 1
        assert learner.hear("trajectory").fields["number"] == 2
        learner.say("ack", "one", 0)  # it is there, and has not got them
        assert learner.hear("hello").fields["first"] == 1
        learner.say("welcome", "one", 1)
        assert learner.hear("trajectory").fields["number"] == 2
        learner.say("ack", "one", 2, kept=2)
        assert learner.hear("trajectory").fields["number"] == 3
        learner.say("ack", "two", 0)  # another life, from no checkpoint
        assert learner.hear("hello").fields["first"] == 3, "two are kept and gone"
        learner.say("welcome", "two", 2, version=9)
        assert learner.hear("trajectory").fields["number"] == 3
        learner.say("done", "two", 0, reason="enough")
        assert learner.hear("bye").fields["worker"]
        worked = end()
    assert (worked.reason, worked.faults["crash"]) == ("enough", 0)


def test_it_plays_with_the_newest_policy_and_evaluates_the_one_that_it_is_told_to() -> None:
    with working() as (learner, end):
        learner.hear("hello")
        learner.say("welcome", "one", 0, version=3)
        first = learner.hear("trajectory")
        assert first.fields["version"] == 3
        order = {"order": 5, "episodes": 2, "seed": 1}
        learner.hear("hello")  # it has lost patience, and hears what it is asked all the same
        learner.say("ack", "one", 1, version=7, evaluate=order)
        learner.say("welcome", "one", 1)
        number, told = 1, None
        while told is None:
            found = learner.hear("trajectory")
            number, told = found.fields["number"], found.fields.get("evaluation")
            learner.say("ack", "one", number)
        assert (told, found.fields["version"]) == ({"order": 5, "rewards": [5.0, 5.0], "lengths": [5, 5]}, 7)
        assert learner.hear("trajectory").fields["version"] == 7
        learner.say("done", "one", 0, reason="enough")
        end()


def test_a_full_worker_asks_the_next_learner_for_room_after_it_has_sent_everything_again() -> None:
    with working(limit=2, patience=30.0) as (learner, end):
        learner.hear("hello")
        learner.say("welcome", "one", 0, version=0)
        learner.hear("full", "one")
        learner.say("ack", "two", 0)  # another life, which has nothing
        assert learner.hear("hello").fields["full"] is True
        learner.say("welcome", "two", 0)
        assert [learner.hear("trajectory").fields["number"] for _ in range(2)] == [1, 2]
        learner.say("ack", "two", 2)
        learner.hear("full")  # a checkpoint that the greeting had asked for may have had neither
        learner.say("done", "two", 0, reason="enough")
        end()


class Crashing(Numbered):
    """Ends the process of its simulator in the first evaluation: the second environment that there is."""

    made = mmap.mmap(-1, 1)

    def __init__(self) -> None:
        super().__init__(0.0)
        self.made[0] += 1
        self.number = self.made[0]

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.number == 2:
            os._exit(3)
        return super().step(action)


def test_an_evaluation_that_is_lost_with_its_simulator_is_asked_for_again() -> None:
    order = {"order": 5, "episodes": 1, "seed": 1}
    with working(environment=Crashing, patience=30.0, backoff=0.01) as (learner, end):
        learner.hear("hello")
        learner.say("welcome", "one", 0, version=3)
        learner.say("ack", "one", 0, version=4, evaluate=order)
        learner.hear("hello", "one")  # long before it would have lost patience
        learner.say("welcome", "two", 0, version=4)
        learner.say("ack", "two", 0, version=4, evaluate=order)
        told = None
        while told is None:
            found = learner.hear("trajectory")
            told = found.mapping("evaluation")
            learner.say("ack", "two", found.count("number"))
        assert told["order"] == 5
        learner.say("done", "two", 0, reason="enough")
        assert end().faults["crash"] == 1


def listening(port: int) -> Listener:
    try:
        return Listener(Keys.of(KEY), "127.0.0.1", port)
    except NoPort as error:  # a connection to whoever had it before may still be there for a moment
        raise AssertionError from error


def test_a_learner_is_called_anew_where_somebody_else_had_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lattice.rl.worker.ANEW", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        address = f"127.0.0.1:{stranger.getsockname()[1]}"
        with working(address=address) as (learner, end):
            connection, _ = stranger.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                with contextlib.suppress(ConnectionResetError):
                    while connection.recv(1000):
                        pass
            stranger.close()
            learner.listener.close()
            learner.listener = eventually(lambda: listening(int(address.partition(":")[2])))
            learner.hear("hello")
            learner.say("done", "one", 0, reason="enough")
            assert end().reason == "enough"
