"""Real processes form real gloo groups on our store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from lattice.core.spec import StoreSpec
from lattice.environments.store import store_variables
from tests.etcd_server import EtcdServer, free_ports
from tests.tiers import quick_and_long
from tests.waiting import patience

WORKER = Path(__file__).with_name("group_worker.py")


@contextmanager
def workers(what: str, world: int, more: dict[str, str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Run the worker program once per rank."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LATTICE_", "TORCH"))}
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "OMP_NUM_THREADS": "1"}
    place |= {"LATTICE_RUN_ID": str(uuid.uuid4()), "LATTICE_ROUND": "3", "WORLD_SIZE": str(world), **more}
    with ExitStack() as stack:
        started = []
        for rank in range(world):
            variables = {**inherited, **place, "RANK": str(rank)}
            pipe = subprocess.PIPE
            process = subprocess.Popen(
                [sys.executable, str(WORKER), what], env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            started.append(process)
        yield started


def totals(started: list[subprocess.Popen[str]]) -> list[str]:
    lines = []
    for process in started:
        output, errors = process.communicate(timeout=patience(120))
        assert process.returncode == 0, errors
        lines += [line.removeprefix("total ") for line in output.splitlines() if line.startswith("total ")]
    return lines


def variables(etcd: EtcdServer) -> dict[str, str]:
    return store_variables(StoreSpec("etcd", (etcd.endpoint,)), 0)


def test_a_script_trains_on_a_group_of_our_store(etcd: EtcdServer) -> None:
    with workers("by_store", 2, variables(etcd)) as started:
        assert totals(started) == ["3 EtcdStore", "3 EtcdStore"]


@pytest.mark.long
def test_without_etcd_the_same_script_gets_the_store_of_rank_0() -> None:
    with workers("by_store", 2, {}) as started:
        assert totals(started) == ["3 PrefixStore", "3 PrefixStore"]


@pytest.mark.parametrize("backend", quick_and_long(["memory"], ["etcd"]))
def test_a_url_is_enough(etcd: EtcdServer, backend: str) -> None:
    with workers("by_url", 2, variables(etcd) if backend == "etcd" else {}) as started:
        assert totals(started) == ["3", "3"]


def test_the_others_go_on_without_rank_0(etcd: EtcdServer) -> None:
    with workers("without_rank_0", 3, variables(etcd)) as (first, *others):
        assert first.wait(timeout=patience(120)) == -signal.SIGKILL
        for other in others:
            assert other.stdout is not None and other.stdout.readline() == "ready\n"
            assert other.stdin is not None
            other.stdin.write("go on\n")
            other.stdin.flush()
        assert totals(others) == ["3", "3"]


def test_a_forked_child_does_not_disturb_its_parent(etcd: EtcdServer) -> None:
    with workers("forked", 1, variables(etcd)) as started:
        assert totals(started) == ["41 41"]
