"""What an agent tells workers while they run: that they will be stopped, and to show where they are."""

from __future__ import annotations

import json
import time
from pathlib import Path

from lattice.agent.board import Board
from lattice.core.board import UNKNOWN, Line
from lattice.process.workers import Worker

NOTICE_FILE = "notice.json"
"""in the log folder of a worker"""


def notice_file(folder: Path) -> Path:
    """Give the place of a worker's notice, which is not there before one is given."""
    path = folder / NOTICE_FILE
    path.unlink(missing_ok=True)
    return path


def give_notice(
    board: Board, worker: Worker, local_rank: int, folder: Path, reason: str, until: float, signal_number: int
) -> Path | None:
    """
    Tell a worker that it will be stopped: by a file, on the board, and by the signal that it asked for.

    :param board: where workers tell what they want
    :param worker: the worker
    :param local_rank: its line of the board
    :param folder: its log folder
    :param reason: why it will be stopped
    :param until: when
    :param signal_number: sent if it did not ask for a signal of its own; 0 for none
    :return: the file, if it could be written; a worker that removes it is ready
    """
    text = json.dumps({"reason": reason, "seconds": round(until - time.monotonic(), 3)})
    whole = folder / f".{NOTICE_FILE}"
    file: Path | None = folder / NOTICE_FILE
    try:
        whole.write_text(text)
        whole.rename(folder / NOTICE_FILE)
    except OSError:
        file = None  # a full disk: the board tells too
    board.give_notice(local_rank, until)
    line = board.line(local_rank)
    if line.wants > 0:
        worker.signal_inside(line.pid, line.wants)
    elif not line.wants and signal_number:
        worker.signal(signal_number, group=False)
    return file


def is_ready(board: Board, local_rank: int, file: Path | None) -> bool:
    """Tell whether a worker that was given notice has done what it wanted to do."""
    return board.line(local_rank).ready or (file is not None and not file.exists())


def show_stacks(board: Board, worker: Worker, local_rank: int) -> bool:
    """Make a worker write the stacks of its threads to its standard error, if it can; tell whether it was asked."""
    line = board.line(local_rank)
    return bool(line.stacks) and worker.signal_inside(line.pid, line.stacks)


def progress(rank: int, line: Line, pid: int, now: float) -> str:
    """Say in a few words how far a worker has come, and what it does."""
    step = f"step {line.step}, " if line.step != UNKNOWN else ""
    beat = f"last heartbeat {now - line.beat_at:.1f} s ago" if line.beats else "no heartbeat yet"
    return f"rank {rank} (pid {pid}): {step}{beat}, {_condition(line.pid or pid)}"


def _condition(pid: int) -> str:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return "ended"
    found = [line.partition("(")[2].rstrip(")") for line in status.splitlines() if line.startswith("State:")]
    return found[0] if found else "ended"
