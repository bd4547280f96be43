"""What a worker says to a keeper that does what the test wants."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from lattice.checkpoint.client import Client, NoKeeper
from lattice.checkpoint.messages import listener, receive, send
from lattice.core.keeper import VARIABLE
from tests.waiting import patience


class Keeper:
    """The other end."""

    def __init__(self, name: str) -> None:
        self._listener = listener(name)
        self.line: socket.socket | None = None

    def called(self) -> None:
        """Take a call."""
        self.die()
        self.line, _ = self._listener.accept()
        self.line.settimeout(30)

    def die(self) -> None:
        """Hang up; another one takes the next call."""
        if self.line is not None:
            self.line.close()
            self.line = None

    def hear(self) -> dict[str, Any]:
        """Take the next message."""
        assert self.line is not None
        message, descriptor = receive(self.line)
        if descriptor is not None:
            os.close(descriptor)
        assert message is not None
        return message

    def heard(self) -> list[dict[str, Any]]:
        """Take what was sent so far."""
        assert self.line is not None
        found = []
        while select.select([self.line], [], [], 0)[0]:
            found.append(self.hear())
        return found

    def say(self, message: dict[str, Any]) -> None:
        """Say something."""
        assert self.line is not None
        send(self.line, message)

    def close(self) -> None:
        """End."""
        self.die()
        self._listener.close()


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> Iterator[Keeper]:
    name = f"lattice-test-{os.urandom(8).hex()}"
    monkeypatch.setenv(VARIABLE, name)
    with closing(Keeper(name)) as made:
        yield made


@pytest.fixture
def worker() -> Iterator[Client]:
    with closing(Client("somewhere", 2)) as made:
        yield made


def save(worker: Client) -> None:
    arena = worker.arena()
    arena.begin("file")
    arena.write(b"data")
    worker.keep(arena, {})


def kept(messages: list[dict[str, Any]]) -> list[int]:
    return [message["arena"] for message in messages if message["do"] == "keep"]


@pytest.mark.parametrize("found_out", [True, False])
def test_another_keeper_is_told_everything_once(found_out: bool, keeper: Keeper, worker: Client) -> None:
    save(worker)
    keeper.called()
    assert kept(keeper.heard()) == [1]
    if not found_out:
        arena = worker.arena()
    keeper.die()
    if found_out:
        arena = worker.arena()
    arena.begin("file")
    worker.keep(arena, {})
    keeper.called()
    assert kept(keeper.heard()) == [1, 2]


def test_memory_that_cannot_be_given_back_yet_is_asked_for_again(keeper: Keeper, worker: Client) -> None:
    save(worker)
    save(worker)
    keeper.called()
    assert kept(keeper.heard()) == [1, 2]
    waits = threading.Thread(target=lambda: worker.give_up(worker.arena()))
    waits.start()
    try:
        assert [keeper.hear()["do"], keeper.hear()["do"]] == ["need", "need"]
    finally:
        keeper.say({"released": 1})
        waits.join()


@contextmanager
def waiting(worker: Client) -> Iterator[list[str]]:
    """Have a worker wait until all is written, meanwhile."""
    heard: list[str] = []
    thread = threading.Thread(target=lambda: heard.append(worker.wait(patience(30))))
    thread.start()
    try:
        yield heard
    finally:
        thread.join()


def test_an_answer_that_comes_too_late_is_not_taken_for_that_to_another_question(
    keeper: Keeper, worker: Client
) -> None:
    assert worker.wait(0) == "not done after 0s"
    keeper.called()
    asked = keeper.hear()
    keeper.say({"question": asked.get("question"), "idle": True})
    with waiting(worker) as heard:
        asked = keeper.hear()
        keeper.say({"question": asked.get("question"), "idle": False, "problem": "full"})
    assert heard == ["full"]


def test_a_question_is_asked_again_if_the_keeper_dies(keeper: Keeper, worker: Client) -> None:
    with waiting(worker) as heard:
        for _ in range(2):
            keeper.called()
            asked = keeper.hear()
            assert asked["do"] == "wait"
        keeper.say({"question": asked.get("question"), "idle": True})
    assert heard == [""]


def test_it_is_not_asked_for_ever(keeper: Keeper, worker: Client) -> None:
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            worker.held()
        except NoKeeper as error:
            raised.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(3):
        keeper.called()
        keeper.hear()
    keeper.die()
    thread.join()
    assert "went away 3 times" in str(raised[0])


def test_commits_are_reported_without_waiting(keeper: Keeper, worker: Client) -> None:
    assert worker.committed_step() is None, "and nothing is started for it"
    for step in (1, 2, 3):
        worker.watch_commit(f"folder {step}", step)
    save(worker)
    keeper.called()
    assert worker.committed_step() is None
    keeper.say({"committed": "folder of another"})
    keeper.say({"committed": "folder 2"})
    assert worker.committed_step() == 2
    keeper.say({"committed": "folder 1"})  # written again by a keeper that came later
    assert worker.committed_step() == 2
    keeper.say({"committed": "folder 3"})
    assert worker.committed_step() == 3


def test_a_lost_report_comes_from_the_next_keeper(keeper: Keeper, worker: Client) -> None:
    save(worker)
    worker.watch_commit("folder 1", 1)
    keeper.called()
    keeper.die()
    assert worker.committed_step() is None
    assert worker.committed_step() is None and worker._line is None, "it is not called again at once"
    worker._reconnect_at = 0.0  # as if a second had passed
    assert worker.committed_step() is None
    keeper.called()
    assert kept(keeper.heard()) == [1]
    keeper.say({"committed": "folder 1"})
    assert worker.committed_step() == 1


def test_no_keeper_at_all_is_no_error(worker: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"lattice-test-{os.urandom(8).hex()}")
    with pytest.raises(NoKeeper):
        save(worker)
    worker.watch_commit("folder 1", 1)
    assert worker.committed_step() is None
