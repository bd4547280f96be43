"""Processes as the kernel accounts for them: who descends from whom, what they cost, and that all of them end."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterable
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
KILL_TIMEOUT = 20.0


def become_subreaper() -> None:
    """Let whatever our children leave behind become ours, so that :func:`kill_descendants` finds it."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a child subreaper")


def descendants(pid: int, without: Collection[int] = (), *, ended: bool = False) -> list[int]:
    """
    Find the processes that descend from one and run.

    :param pid: the ancestor, not part of the result
    :param without: processes that are left out, and with them what descends from them
    :param ended: whether those count too that have ended and whose exit status nobody has taken
    """
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if ended or fields[0] not in ("Z", "X"):
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, fresh = [], [pid]
    while fresh:
        fresh = [child for parent in fresh for child in children.get(parent, ()) if child not in without]
        found += fresh
    return found


def cpu_seconds(pids: Iterable[int]) -> dict[int, float]:
    """Tell how much processor time each of these processes has used, its threads included."""
    used = {}
    for pid in pids:
        try:
            used[pid] = time.clock_gettime((~pid << 3) | 2)  # the clock that clock_getcpuclockid() names
        except OSError:
            continue
    return used


def memory(pids: Iterable[int]) -> tuple[float, float]:
    """
    Tell how much memory processes hold.

    :return: resident megabytes, and proportional ones, in which a shared page counts by its share
    """
    rss = pss = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, _, rest = line.partition(":")
            rss += int(rest.split()[0]) if name == "Rss" else 0
            pss += int(rest.split()[0]) if name == "Pss" else 0
    return rss / 1024, pss / 1024


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL to processes that may have ended."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def kill_descendants(keep: Collection[int] = ()) -> None:
    """
    End everything that descends from this process, and collect it.

    :param keep: children that go on
    """
    deadline = time.monotonic() + KILL_TIMEOUT
    while living := descendants(os.getpid(), without=keep, ended=True):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {living} could not be killed in {KILL_TIMEOUT:.0f}s")
        kill(living)
        _collect(keep)
        time.sleep(0.01)


def _collect(keep: Collection[int]) -> None:
    """Collect the exit status of children that nobody else waits for."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None or ended.si_pid in keep:
                return
            os.waitpid(ended.si_pid, 0)
        except ChildProcessError:
            return
