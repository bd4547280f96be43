"""One try of each thing that is measured: run a job, do something to it, see how long it takes to be well again."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

from benchmarks import processes
from benchmarks.etcd import free_port
from benchmarks.jobs import WORKERS, Formed, Job, NeverStartedError, clean_environment
from benchmarks.launchers import LOOPBACK, Launcher, Shape
from benchmarks.measure import Try

HELLO, STAMPED = str(WORKERS / "hello.py"), str(WORKERS / "stamped.py")
SETTLE = 0.5
"""seconds between a complete group and the death of a worker"""
LONG_ROUND = 11.0
"""seconds that a round lives before a node goes: after a shorter one Lattice pauses a second, to damp flapping"""
START_TIMEOUT = 60.0
REST = 4.0
"""seconds after which memory is measured: two after its workers Lattice has forked those that wait for a restart"""
SELDOM = 0.05
"""seconds between two looks at workers that need all cores"""
LINE, END = "first worker line", "end of the command"
RSS, PSS = "resident", "proportional (a shared page counts by its share)"
ALL, WORKERS_ALONE = "agent, helpers and workers together", "the workers alone"
STEP, STEPS = "one step", 2000
AGAIN, GROUP = "first line of the new workers", "process group that did one all_reduce"


def start(launcher: Launcher) -> Try:
    """Measure from the command to the first line of a worker; processor time is that of the whole command."""
    argv = launcher(Shape(restarts=0), [HELLO])[0]
    with Job() as job:
        began = time.monotonic()
        agent = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=clean_environment(),
            cwd=job.folder,
            start_new_session=True,
        )
        assert agent.stdout is not None
        with agent.stdout:
            ready, _, _ = select.select([agent.stdout], [], [], START_TIMEOUT)
            if not ready or b"hello" not in agent.stdout.readline():
                raise NeverStartedError(f"no line of the worker in {START_TIMEOUT:.0f}s: {argv}")
            line = time.monotonic() - began
            agent.stdout.read()
        _, _, usage = os.wait4(agent.pid, 0)
        end = time.monotonic() - began
    return Try({LINE: line, END: end}, usage.ru_utime + usage.ru_stime)


def memory(launcher: Launcher) -> Try:
    """Measure what an agent and its helpers hold while a worker runs; workers are not counted."""
    with Job() as job:
        agent = job.start(launcher(Shape(), [STAMPED, str(job.stamps_folder), "idle"])[0])
        job.wait_begun(1, kind="line")
        time.sleep(SETTLE)
        tree = job.tree(agent)
        rss, pss = processes.memory(tree)
        cpu = sum(processes.cpu_seconds(tree).values())
    return Try({RSS: rss, PSS: pss}, cpu)


def group_start(launcher: Launcher, workers: int) -> Try:
    """Measure from the command to a process group of all workers; processor time is that of everybody until then."""
    with Job() as job:
        began = time.monotonic()
        agent = job.start(launcher(Shape(workers=workers), [STAMPED, str(job.stamps_folder), "computing"])[0])
        formed = job.wait_begun(workers)
        cpu = sum(processes.cpu_seconds([agent.pid, *processes.descendants(agent.pid)]).values())
    return Try({GROUP: formed.at - began}, cpu)


def group_memory(launcher: Launcher, workers: int) -> Try:
    """Measure the proportional memory of a whole node with a process group; processor time is that of everybody."""
    with Job() as job:
        agent = job.start(launcher(Shape(workers=workers), [STAMPED, str(job.stamps_folder), "computing"])[0])
        formed = job.wait_begun(workers)
        time.sleep(REST)
        everybody = [agent.pid, *processes.descendants(agent.pid)]
        (_, together), (_, alone) = processes.memory(everybody), processes.memory(formed.pids)
        cpu = sum(processes.cpu_seconds(everybody).values())
    return Try({ALL: together, WORKERS_ALONE: alone}, cpu)


def steps(launcher: Launcher | None, workers: int) -> Try:
    """
    Measure a training step; processor time is what agents and helpers used during all steps.

    :param launcher: who supervises; None for plain processes with the same variables
    :param workers: how many, on one node
    """
    with Job() as job:
        entry = [STAMPED, str(job.stamps_folder), "stepping", str(STEPS)]
        if launcher is not None:
            job.start(launcher(Shape(workers=workers), entry)[0])
        else:
            common = {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(workers)}
            for rank in range(workers):
                ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"}
                job.start([sys.executable, *entry], {**common, **ranks})
        begun = job.wait_begun(workers, "begin", SELDOM)
        before = _cpu(job) if launcher else {}
        ended = job.wait_begun(workers, "end", SELDOM)
        used = sum(now - before.get(pid, 0.0) for pid, now in _cpu(job).items()) if launcher else None
    return Try({STEP: (ended.at - begun.at) / STEPS * 1000}, used)


def worker_death(launcher: Launcher, shape: Shape, cap: float) -> Try:
    """Measure from the SIGKILL of the last rank to a new process group."""
    with Job() as job:
        formed = _run(job, launcher, shape)
        time.sleep(SETTLE)
        before = _cpu(job)
        fault = time.monotonic()
        processes.kill([formed.pids[-1]])
        return _recovery(job, shape.world, fault, cap, before)


def node_loss(launcher: Launcher, shape: Shape, cap: float, mode: str = "training") -> Try:
    """Measure from the SIGKILL of everything on the last node to a new process group of the others."""
    with Job() as job:
        _run(job, launcher, shape, mode)
        time.sleep(LONG_ROUND)
        lost = job.agents.pop()
        before = _cpu(job)
        node = [lost.pid, *processes.descendants(lost.pid)]
        fault = time.monotonic()
        processes.kill(node)  # the agent first: it must not see its workers end and tell the others
        lost.wait()
        return _recovery(job, shape.world - shape.workers, fault, cap, before)


def goodbye(launcher: Launcher, shape: Shape, cap: float) -> Try:
    """Measure from the SIGTERM to the agent of the last node to a new process group of the others."""
    with Job() as job:
        _run(job, launcher, shape)
        time.sleep(LONG_ROUND)
        leaving = job.agents.pop()
        before = _cpu(job)
        fault = time.monotonic()
        leaving.send_signal(signal.SIGTERM)
        recovery = _recovery(job, shape.world - shape.workers, fault, cap, before)
        leaving.poll()
        return recovery


def _run(job: Job, launcher: Launcher, shape: Shape, mode: str = "training") -> Formed:
    for argv in launcher(shape, [STAMPED, str(job.stamps_folder), mode]):
        job.start(argv)
    return job.wait_begun(shape.world)


def _cpu(job: Job) -> dict[int, float]:
    return processes.cpu_seconds([pid for agent in job.agents for pid in job.tree(agent)])


def _recovery(job: Job, world: int, fault: float, cap: float, before: dict[int, float]) -> Try:
    formed = job.wait_formed(world, fault, cap)
    cpu = sum(used - before.get(pid, 0.0) for pid, used in _cpu(job).items())
    begun = job.formed(world, fault, kind="line")
    moments = {AGAIN: begun, GROUP: formed}
    figures = {name: moment.at - fault for name, moment in moments.items() if moment is not None}
    gave_up = all(agent.poll() is not None for agent in job.agents)
    return Try(figures, None if gave_up else cpu, gave_up)
