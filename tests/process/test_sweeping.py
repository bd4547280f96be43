from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from lattice.process.guard import read_process, read_processes
from lattice.process.spawning import Guard
from lattice.process.workers import Worker
from tests.process.conftest import ended, read_line

Start = Callable[..., tuple[Worker, int]]

FAMILY = "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; (setsid sh -c 'sleep 1000 & echo $!; wait' &) ; {end}"


def alive(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and not process.ended


def zombies() -> list[int]:
    return [p.pid for p in read_processes() if p.parent == os.getpid() and p.ended]


def test_nothing_is_left_of_an_ended_worker_with_children_that_left_its_session(guard: Guard, start: Start) -> None:
    worker, output = start("/bin/sh", "-c", FAMILY.format(end="exit 7"))
    family = [int(read_line(output)) for _ in range(3)]
    assert ended(worker).code == 7
    assert all(map(alive, family)), "there is something to sweep"
    assert guard.sweep() == ()
    assert not any(map(alive, family))
    assert not set(zombies()) & set(family), "killed orphans are reaped"


def test_workers_that_go_on_and_their_children_are_kept(guard: Guard, start: Start) -> None:
    kept, kept_output = start("/bin/sh", "-c", FAMILY.format(end="sleep 1000"))
    kept_family = [int(read_line(kept_output)) for _ in range(3)]
    gone, gone_output = start("/bin/sh", "-c", "sleep 1000 & echo $!; exit 0")
    gone_child = int(read_line(gone_output))
    ended(gone)
    assert guard.sweep(keep=[kept.pid]) == ()
    assert not alive(gone_child)
    assert alive(kept.pid) and all(map(alive, kept_family))
    kept.signal(9)
    ended(kept)
    guard.sweep()
    assert not any(map(alive, kept_family))


def test_a_sweep_never_takes_a_workers_exit_status(guard: Guard, start: Start) -> None:
    worker, output = start("/bin/sh", "-c", "echo; exit 9")
    read_line(output)
    running, _ = start("sleep", "1000")
    guard.sweep()
    assert ended(worker).code == 9
    assert ended(running).signal == 9, "a worker that is not kept is killed, and says so"


def test_other_children_of_ours_are_left_alone() -> None:
    before = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    guard = Guard()
    after = subprocess.Popen(["sleep", "1000"])
    short = subprocess.Popen(["/bin/sh", "-c", "exit 4"])
    spared = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        os.waitid(os.P_PID, short.pid, os.WEXITED | os.WNOWAIT)
        guard.sweep(spare=[spared.pid])
        assert short.wait() == 4
        assert before.poll() is None and after.poll() is None and spared.poll() is None
    finally:
        guard.close()
        for process in (before, after, spared):
            process.kill()
            process.wait()
