"""
What a worker may tell Lattice, and hear from it: progress, and notice of a planned stop.

Everything here does nothing in a process that Lattice did not start, so a script may call it anywhere.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

from lattice.core.board import (
    BEAT_AT,
    BEATS,
    FIRST_AT,
    FIRST_STEP,
    LINE,
    LONGEST,
    NOTICE_VARIABLE,
    NOTICED_UNTIL,
    PID,
    POLLS,
    READY,
    STACKS,
    STEP,
    UNKNOWN,
    VARIABLE,
    WANTS,
)

__all__ = ["Notice", "heartbeat", "notice", "on_notice"]

STACK_SIGNAL = signal.SIGRTMAX - 7
"""makes a worker write the stacks of its threads to standard error"""


class _Board:
    """This worker's line."""

    def __init__(self, memory: mmap.mmap, offset: int) -> None:
        line = memoryview(memory)[offset : offset + LINE]
        self.moments, self.counts = line.cast("d"), line.cast("q")


def _open() -> _Board | None:
    path, _, offset = os.environ.get(VARIABLE, "").partition("@")
    if not path or not offset.isdigit():
        return None
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return _Board(mmap.mmap(descriptor, 0), int(offset))
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return None  # another user, another container, or an agent that is gone: nobody to tell


_opened: list[_Board | None] = []


def _board() -> _Board | None:
    if not _opened:
        _opened.append(_open())
    return _opened[0]


def heartbeat(step: int | None = None) -> None:
    """
    Tell that this worker gets on; cheap enough for every step.

    It feeds ``--hang_timeout``, the report of the slowest rank, and the goodput figure: what was trained again after a
    restart counts as lost.

    :param step: the step that was just completed, if steps are counted
    """
    board = _board()
    if board is None:
        return
    now, moments, counts = time.monotonic(), board.moments, board.counts
    if counts[BEATS]:
        pause = now - moments[BEAT_AT]
        if pause > moments[LONGEST]:
            moments[LONGEST] = pause
    else:
        moments[FIRST_AT] = now
        counts[FIRST_STEP] = counts[STEP] = UNKNOWN if step is None else step
        _show_stacks(board)
    if step is not None:
        counts[STEP] = step
    moments[BEAT_AT] = now
    counts[BEATS] += 1


def _show_stacks(board: _Board) -> None:
    """Let the agent have the stacks of this process, even while its interpreter is stuck in a call."""
    import faulthandler

    if signal.getsignal(STACK_SIGNAL) is signal.SIG_DFL:
        try:
            faulthandler.register(STACK_SIGNAL, file=2, all_threads=True)
        except (OSError, RuntimeError, ValueError):
            return
        board.counts[PID] = os.getpid()
        board.counts[STACKS] = STACK_SIGNAL


@dataclass(frozen=True, slots=True)
class Notice:
    """This worker will be stopped, for a reason that leaves it time to save."""

    reason: str
    until: float
    """a moment of :func:`time.monotonic`; SIGTERM comes then, or as soon as all workers are ready"""

    @property
    def seconds(self) -> float:
        """Tell how much time is left."""
        return max(self.until - time.monotonic(), 0.0)

    def ready(self) -> None:
        """Say that this worker has saved what it wanted to."""
        board = _board()
        if board is not None:
            board.counts[READY] = 1


def notice() -> Notice | None:
    """
    Look whether this worker was given notice; cheap enough for every step.

    A worker that has looked once is waited for, up to ``--notice_grace``, until it calls :meth:`Notice.ready` or ends.
    """
    board = _board()
    if board is None:
        return None
    if not board.counts[WANTS]:
        board.counts[WANTS] = POLLS
    until = board.moments[NOTICED_UNTIL]
    return Notice(_reason(), until) if until else None


def _reason() -> str:
    try:
        with open(os.environ.get(NOTICE_VARIABLE, ""), encoding="utf-8") as file:  # noqa: PTH123 - of a variable
            return str(json.load(file)["reason"])
    except (OSError, ValueError, KeyError):
        return ""


def on_notice(callback: Callable[[Notice], Any], signal_number: int = signal.SIGUSR1) -> None:
    """
    Have a function called when this worker is given notice: before newcomers are let in, and when a node leaves.

    It is called in the main thread, between two instructions of the script, so at different points of it in each
    worker: what needs all workers together (a collective save) should only be noted there and done at the next step.
    The worker counts as ready when the function returns, unless it returns False: then once it calls
    :meth:`Notice.ready`.

    :param callback: called with the notice
    :param signal_number: the signal by which it is called; earlier handlers get it when there is no notice
    :raises RuntimeError: not called from the main thread, which is the only one that hears signals
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("lattice.on_notice must be called from the main thread: only it hears signals.")
    board = _board()
    if board is None:
        return
    before = signal.getsignal(signal_number)

    def heard(number: int, frame: FrameType | None) -> None:
        given = notice()
        if given is None:
            if callable(before):
                before(number, frame)
        elif callback(given) is not False:
            given.ready()

    signal.signal(signal_number, heard)
    board.counts[PID] = os.getpid()
    board.counts[WANTS] = signal_number
