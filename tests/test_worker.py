"""What a worker may call, by itself and with a board."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import lattice
from lattice import worker
from lattice.agent.board import Board
from lattice.core.board import POLLS, VARIABLE, Line
from lattice.process.zygote import newborn


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    made = Board(2)
    monkeypatch.setenv(VARIABLE, made.variables(1)[VARIABLE])
    monkeypatch.setattr(worker, "_opened", [])
    before = signal.getsignal(signal.SIGUSR1)
    yield made
    signal.signal(signal.SIGUSR1, before)
    worker._opened.clear()
    made.close()


@pytest.mark.parametrize("value", ["", "/nowhere@0", "/proc/self/fd/1", "nonsense", "/dev/null@0", "/proc/1/fd/0@x"])
def test_nothing_happens_outside_of_lattice(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, value)
    monkeypatch.setattr(worker, "_opened", [])
    before = signal.getsignal(signal.SIGUSR1)
    lattice.heartbeat()
    lattice.heartbeat(step=3)
    assert lattice.notice() is None
    lattice.on_notice(print)
    assert signal.getsignal(signal.SIGUSR1) is before


def test_heartbeats_are_seen_by_the_agent(board: Board) -> None:
    lattice.heartbeat(7)
    first = board.line(1)
    assert (first.beats, first.first_step, first.step, first.pid) == (1, 7, 7, os.getpid())
    assert first.stacks and first.first_at == first.beat_at > 0
    lattice.heartbeat(8)
    lattice.heartbeat()
    last = board.line(1)
    assert (last.beats, last.first_step, last.step) == (3, 7, 8)
    assert last.beat_at >= first.beat_at and last.longest > 0
    assert board.line(0) == Line(), "a line of its own"
    board.clear()
    assert board.line(1) == Line()


def test_a_notice_calls_and_is_ready_unless_told_otherwise(board: Board) -> None:
    given: list[lattice.Notice] = []
    lattice.on_notice(given.append)
    assert board.line(1).wants == signal.SIGUSR1
    os.kill(os.getpid(), signal.SIGUSR1)
    assert not given and not board.line(1).ready, "a signal without a notice is none"
    board.give_notice(1, 1e12)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert len(given) == 1 and given[0].seconds > 0 and board.line(1).ready


def test_who_is_not_ready_yet_says_so_later(board: Board) -> None:
    lattice.on_notice(lambda notice: False)
    board.give_notice(1, 1e12)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert not board.line(1).ready
    notice = lattice.notice()
    assert notice is not None
    notice.ready()
    assert board.line(1).ready and board.line(1).wants == signal.SIGUSR1


def test_looking_is_asking(board: Board) -> None:
    assert lattice.notice() is None
    assert board.line(1).wants == POLLS


def test_an_earlier_handler_keeps_its_signal(board: Board) -> None:
    heard = []
    signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    lattice.on_notice(print)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert heard == [signal.SIGUSR1]


def test_another_thread_is_told_that_it_cannot_hear(board: Board) -> None:
    errors: list[Exception] = []

    def ask() -> None:
        try:
            lattice.on_notice(print)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])


def test_the_zygote_writes_where_the_agent_reads(board: Board) -> None:
    newborn.note(newborn.ENTERED)
    newborn.note(newborn.GROUPED)
    line = board.line(1)
    assert 0 < line.entered <= line.grouped


def test_lattice_itself_is_light() -> None:
    code = "import lattice, sys; print('lattice.worker' in sys.modules, lattice.heartbeat(), 'torch' in sys.modules)"
    environ = {**os.environ, "PYTHONPATH": str(Path(lattice.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=True)
    assert done.stdout.split() == ["False", "None", "False"]
