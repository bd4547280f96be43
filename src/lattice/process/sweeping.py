"""Kills and reaps what ended workers left behind, and takes no exit status that somebody else waits for."""

from __future__ import annotations

import os
import signal
import time

from lattice.core.dataclass import dataclass
from lattice.process.guard import Process, read_process, read_processes

SWEEP_TIMEOUT = 2.0
SWEEP_INTERVAL = 0.002


@dataclass(frozen=True, slots=True)
class Household:
    """Who is who among the descendants of this process, a child subreaper."""

    unreaped: frozenset[int]
    """workers whose exit status has not been read: never reaped by a sweep"""
    kept: frozenset[int]
    """workers that go on, with their descendants and everybody in their sessions"""
    spared: frozenset[int]
    """processes that are no workers and stay, with their descendants"""
    ended: frozenset[int]
    """sessions of ended workers"""


def sweep(household: Household) -> tuple[int, ...]:
    """
    Kill until nothing is left of ended workers, and reap orphans that have ended.

    What a worker left behind is always in another session than this process: nobody can join a session that exists.
    So whatever shares this process's session was started by it for other reasons, and stays.

    :return: pids that are still there after some time
    """
    deadline = time.monotonic() + SWEEP_TIMEOUT
    while True:
        table = read_processes()
        left = [process for process in _remains(household, table) if not process.ended]
        for process in left:
            _kill(process)
        _reap(household, table)
        if not left or time.monotonic() > deadline:
            return tuple(process.pid for process in left)
        time.sleep(SWEEP_INTERVAL)


def _remains(household: Household, table: list[Process]) -> list[Process]:
    own_session = os.getsid(0)
    children: dict[int, list[Process]] = {}
    for process in table:
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []

    def belongs_elsewhere(process: Process) -> bool:
        return (
            process.session == own_session
            or process.session in household.kept
            or process.pid in household.kept
            or process.pid in household.spared
        )

    for orphan in children.get(os.getpid(), ()):
        # An orphan in a session of its own may have come from a worker that goes on: nothing tells, so it may stay
        # until no worker does.
        unclear = household.kept and orphan.session not in household.ended
        if not unclear and not belongs_elsewhere(orphan):
            found.append(orphan)
    for process in found:  # grows while it is walked
        found += [child for child in children.get(process.pid, ()) if not belongs_elsewhere(child)]
    return found


def _reap(household: Household, table: list[Process]) -> None:
    untouchable = household.unreaped | household.spared
    for process in table:
        if not process.ended or process.parent != os.getpid() or process.session == os.getsid(0):
            continue
        if process.pid not in untouchable:
            try:
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG)
            except ChildProcessError:
                pass


def _kill(process: Process) -> None:
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        now = read_process(process.pid)
        if now is not None and now.session == process.session:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(pidfd)
