"""The worker program forked from a warm interpreter: it must not notice."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lattice.launching import remains
from lattice.launching.task import Task, pack
from lattice.process.preloading import PythonCommand, read_command
from lattice.process.spawning import Guard
from lattice.process.warming import Zygote
from tests.etcd_server import free_ports
from tests.launching.functions import deep, sum_of_ranks
from tests.launching.workers import ROOT, Ended
from tests.process.conftest import MARKER
from tests.process.warm import collected, settled, variables

LATE = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "LATTICE_LAUNCH_PAYLOAD", "LATTICE_LAUNCH_REMAINS", "LATTICE_LAUNCH_RECORDS",
)  # fmt: skip
PRELOAD = ("torch", "torch.distributed", "cloudpickle", "lattice.launching.task", "lattice.launching.remains")
COMMAND = (sys.executable, "-P", "-m", "lattice.launching.worker")


@pytest.fixture(scope="module")
def zygote() -> Iterator[tuple[Zygote, dict[str, str]]]:
    guard = Guard()
    environ = variables(PYTHONPATH=f"{ROOT}/src", OMP_NUM_THREADS="1")
    command = read_command(COMMAND, environ, "/")
    assert isinstance(command, PythonCommand)
    warm = settled(Zygote(guard, command, environ, "/", MARKER, PRELOAD, LATE, 0))
    try:
        assert warm.take_notes() == ()
        yield warm, environ
    finally:
        warm.close()
        guard.sweep()
        guard.close()


def run(zygote: tuple[Zygote, dict[str, str]], task: Task, world: int) -> list[Ended]:
    warm, environ = zygote
    payload = os.memfd_create("payload")
    left = [os.memfd_create("remains") for _ in range(world)]
    pack(task).write(payload)
    common = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])}
    common["LATTICE_LAUNCH_PAYLOAD"] = f"/proc/{os.getpid()}/fd/{payload}"
    ended: list[Ended] = []

    def watch(rank: int) -> None:
        late = {"RANK": str(rank), "LATTICE_LAUNCH_REMAINS": f"/proc/{os.getpid()}/fd/{left[rank]}"}

        def fork(out: int, err: int):  # type: ignore[no-untyped-def]
            with lock:
                worker = warm.fork({**environ, **common, **late}, "/", None, out, err)
            assert worker is not None, warm.reason
            return worker

        result = collected(fork)
        ended.append(Ended(result.exit.status, result.stdout, result.stderr, remains.read(left[rank]), rank))

    lock = threading.Lock()
    watchers = [threading.Thread(target=watch, args=(rank,)) for rank in range(world)]
    for watcher in watchers:
        watcher.start()
    for watcher in watchers:
        watcher.join()
    for descriptor in (payload, *left):
        os.close(descriptor)
    assert len(ended) == world
    return ended


def test_forked_workers_form_a_group_and_return(zygote: tuple[Zygote, dict[str, str]]) -> None:
    for ended in run(zygote, Task(sum_of_ranks, timeout=60), 2):
        total, backend, world = ended.value()
        assert (total.tolist(), backend, world) == ([3.0], "gloo", 2)
        assert ended.complaints() == b""


def test_a_forked_worker_fails_like_a_fresh_one(zygote: tuple[Zygote, dict[str, str]]) -> None:
    (ended,) = run(zygote, Task(deep, (1,), backend=None), 1)
    assert type(ended.exception()).__name__ == "Demanding"
    assert ended.code == 1
    printed = ended.stderr.decode()
    assert printed.startswith("Traceback (most recent call last):\n")
    assert f"{ROOT}/src/lattice/" not in printed


def test_started_by_hand_it_says_who_starts_it() -> None:
    done = subprocess.run(
        COMMAND, env={"PYTHONPATH": f"{ROOT}/src"}, capture_output=True, text=True, check=False, cwd=Path("/")
    )
    assert done.returncode == 2
    assert "lattice.launch starts this program" in done.stderr
