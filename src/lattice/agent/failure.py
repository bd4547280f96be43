"""Puts together what is known of a failed worker, for the report that every node prints."""

from __future__ import annotations

import signal
from pathlib import Path

from lattice.core.records import FailureRecord
from lattice.core.topology import Assignment
from lattice.process.workers import Exit

ERROR_FILE = "error.json"
"""where a worker may write why it failed, in its log folder"""
LONGEST = 8000
"""characters of a message that are sent to the others; the log has all"""


def describe_failure(
    assignment: Assignment,
    local_rank: int,
    *,
    pid: int,
    ended: Exit,
    stderr: str,
    folder: Path,
    framework: str,
    out_of_memory: bool,
) -> FailureRecord:
    """
    Describe a worker's failure.

    :param assignment: the round it was in
    :param local_rank: which worker of this node
    :param pid: its process, 0 if it never started
    :param ended: its exit code or signal
    :param stderr: the end of what it wrote to standard error
    :param folder: where its logs are, and the error file if it wrote one
    :param framework: which variables it was given
    :param out_of_memory: the kernel says that memory ran out
    """
    from lattice.core import causes  # its patterns are slow to load, and most runs need none

    rank = assignment.entry.rank_offset + local_rank
    recorded = causes.recorded_error(_read(folder / ERROR_FILE))
    message = (recorded.callstack or recorded.message) if recorded else causes.last_traceback(stderr) or _tail(stderr)
    kind = "worker"
    if rank == 0 and causes.is_bind_failure(message + stderr, assignment.master_port):
        kind = "port"
    elif ended.signal in (None, signal.SIGABRT) and causes.is_connection_error(message):
        kind = "connection"
    elif ended.signal == signal.SIGKILL and out_of_memory:
        kind = "memory"
    hint = ""
    if framework == "generic" and causes.missing_rank(message):
        hint = "the script wants RANK and the like; run it with --framework pytorch (LATTICE_FRAMEWORK)"
    elif kind == "memory":
        hint = "killed, likely out of memory: use fewer workers per node, or smaller batches"
    elif ended.signal == signal.SIGKILL:
        hint = "SIGKILL that Lattice did not send is often the kernel out of memory: see dmesg on that host"
    return FailureRecord(
        rank=rank,
        local_rank=local_rank,
        host=assignment.entry.host,
        pid=pid,
        code=ended.code or 0,
        signal=ended.signal or 0,
        message=message[-LONGEST:],
        kind=kind,
        hint=hint,
        log=str(folder),
    )


def describe_hang(
    assignment: Assignment, local_rank: int, *, pid: int, timeout: float, progress: list[str], folder: Path
) -> FailureRecord:
    """
    Describe a worker that lives and does not get on.

    :param assignment: the round it is in
    :param local_rank: which worker of this node
    :param pid: its process
    :param timeout: how long it was waited for
    :param progress: a line for each worker of this node
    :param folder: where its logs are
    """
    told = "\n".join(progress)
    return FailureRecord(
        rank=assignment.entry.rank_offset + local_rank,
        local_rank=local_rank,
        host=assignment.entry.host,
        pid=pid,
        code=1,
        message=f"no heartbeat for {timeout:g}s (--hang_timeout, LATTICE_HANG_TIMEOUT)\n{told}",
        kind="hang",
        hint="the stacks of every worker that gives heartbeats are in its stderr.log",
        log=str(folder),
    )


def fresh_error_file(folder: Path) -> Path:
    """
    Give the error file of a worker that is about to start, and move one away that an earlier run of the id left.

    :param folder: where the worker's logs go
    """
    path = folder / ERROR_FILE
    try:
        path.rename(folder / f"error.{path.stat().st_mtime_ns}.json")
    except OSError:
        pass  # there is none, as nearly always
    return path


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _tail(text: str) -> str:
    return "\n".join(text.rstrip().splitlines()[-20:])
