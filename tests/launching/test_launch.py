"""``lattice.launch`` from the outside: results, errors, ends, and nothing left behind."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import lattice
from lattice.process.guard import read_processes
from tests.agents import ROOT, alive
from tests.launching.transports.sshd import server
from tests.waiting import eventually, patience

ALONE: dict[str, Any] = {"hostnames": ["localhost"], "backend": None, "framework": "generic", "log_handlers": None}
"""without torch: quick"""


def rank() -> int:
    return int(os.environ["LATTICE_RANK"])


def whoami(*args: object) -> tuple[object, ...]:
    return (*args, rank(), os.getpid())


def test_results_come_in_the_order_of_ranks() -> None:
    result = lattice.launch(whoami, ("a",), workers_per_host=3, **ALONE)
    assert [(one[0], one[1]) for one in result] == [("a", 0), ("a", 1), ("a", 2)]
    assert result.rank(2)[1] == result.index("localhost", 2)[1] == 2
    assert len({one[2] for one in result.all()} | {os.getpid()}) == 4, "each in a process of its own"


def test_the_same_host_twice_is_two_agents() -> None:
    settings = {**ALONE, "hostnames": ["localhost", "localhost"]}
    result = lattice.launch(whoami, workers_per_host=[1, 2], **settings)
    assert [one[0] for one in result] == [0, 1, 2]
    assert len(result.results["localhost"]) == 3


class Scale:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def by(self, value: int) -> int:
        return self.factor * value


def test_anything_that_can_be_called() -> None:
    kept = 5
    with lattice.Launcher(workers_per_host=1, **ALONE) as pool:
        assert pool.run(lambda: kept).rank(0) == 5
        assert pool.run(functools.partial(Scale.by, Scale(2), 4)).rank(0) == 8
        assert pool.run(Scale(3).by, 4).rank(0) == 12
        assert pool.run(Scale, 7).rank(0).factor == 7


def test_a_pool_keeps_its_agents() -> None:
    with lattice.Launcher(workers_per_host=1, **ALONE) as pool:
        parents = {pool.run(os.getppid).rank(0) for _ in range(3)}
    assert len(parents) == 1
    eventually(lambda: not alive(parents.pop()) if parents else True)


def stubborn(unlucky: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    fail_at(unlucky)


def test_a_pool_goes_on_after_a_run_that_failed_or_was_broken_off() -> None:
    settings = {**ALONE, "hostnames": ["localhost", "localhost"]}
    with lattice.Launcher(workers_per_host=1, shutdown_timeout=600, **settings) as pool:
        before = pool.run(os.getppid).all()
        with pytest.raises(Unlucky):
            pool.run(stubborn, 1)
        assert pool.run(os.getppid).all() == before
        handle = pool.start(time.sleep, 600)
        eventually(lambda: handle.status() == "running")
        handle.cancel()
        with pytest.raises(InterruptedError):
            handle.result(patience(30))
        assert pool.run(os.getppid).all() == before, "the same agents, and no word of an earlier run"
        pool.run_timeout = 0.5
        with pytest.raises(TimeoutError):
            pool.run(time.sleep, 600)
        pool.run_timeout = None
        assert [one[0] for one in pool.run(whoami)] == [0, 1]
        assert pool.run(os.getppid).all() == before


def test_more_hosts_than_are_needed_all_take_part_at_once() -> None:
    settings = {**ALONE, "hostnames": ["localhost"] * 3}
    result = lattice.launch(lambda: os.environ["LATTICE_ROUND"], workers_per_host=1, min_hosts=1, **settings)
    assert result.all() == ["1", "1", "1"]


class Unlucky(Exception):
    def __init__(self, number: int, word: str) -> None:
        super().__init__(f"{word}: {number}")
        self.number = number


def fail_at(unlucky: int) -> None:
    if rank() == unlucky:
        raise Unlucky(13, "sorry")
    time.sleep(600)


def test_the_first_exception_is_raised_while_others_sleep() -> None:
    with pytest.raises(Unlucky, match="sorry: 13") as caught:
        lattice.launch(fail_at, (1,), workers_per_host=2, **ALONE)
    assert caught.value.number == 13
    notes = "\n".join(caught.value.__notes__)
    assert "rank 1 on localhost" in notes and "in fail_at" in notes, "the traceback there"


def fail_once(folder: str) -> int:
    mark = Path(folder) / "failed"
    if rank() == 1 and not mark.exists():
        mark.touch()
        raise RuntimeError("once")
    return int(os.environ["LATTICE_RESTART_COUNT"])


def test_a_failure_within_the_budget_is_run_again(tmp_path: Path) -> None:
    result = lattice.launch(fail_once, (str(tmp_path),), workers_per_host=2, max_restarts=1, **ALONE)
    assert result.all() == [1, 1]


def test_several_launches_at_once_from_threads() -> None:
    results: dict[int, list[object]] = {}

    def one(number: int) -> None:
        results[number] = [first for first, *_ in lattice.launch(whoami, (number,), workers_per_host=2, **ALONE)]

    threads = [threading.Thread(target=one, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {0: [0, 0], 1: [1, 1]}


def launch_inside() -> list[object]:
    return [one[0] for one in lattice.launch(whoami, workers_per_host=2, **ALONE)]


def test_a_launch_inside_a_worker() -> None:
    assert lattice.launch(launch_inside, workers_per_host=1, **ALONE).rank(0) == [0, 1]


def test_a_limit_for_the_function_and_a_handle_to_cancel_it() -> None:
    with pytest.raises(TimeoutError, match="run_timeout"):
        lattice.launch(time.sleep, (600,), workers_per_host=1, run_timeout=0.5, **ALONE)
    handle = lattice.launch(time.sleep, (600,), workers_per_host=1, wait=False, **ALONE)
    with pytest.raises(TimeoutError, match="goes on"):
        handle.result(0.1)
    eventually(lambda: handle.status() == "running")
    handle.cancel()
    with pytest.raises(InterruptedError):
        handle.result(patience(30))
    assert handle.status() == "cancelled"


def test_arrays_arrive_and_return_without_a_copy_for_each_worker() -> None:
    numpy = pytest.importorskip("numpy")
    array = numpy.arange(4_000_000, dtype=numpy.int32)
    result = lattice.launch(lambda a: a[:: rank() + 1] * 2, (array,), workers_per_host=2, **ALONE)
    assert (result.rank(0) == 2 * array).all() and (result.rank(1) == 2 * array[::2]).all()


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(TypeError, match="hostname"):
        lattice.launch(whoami, hostname="x")  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="workers_per_host"):
        lattice.launch(whoami, **{**ALONE, "workers_per_host": 0})


def test_gloo_groups_are_formed() -> None:
    pytest.importorskip("torch")

    def total() -> float:
        import torch
        import torch.distributed as dist

        one = torch.tensor([float(dist.get_rank() + 1)])
        dist.all_reduce(one)
        return one.item()

    result = lattice.launch(total, hostnames=["localhost"], workers_per_host=2, log_handlers=None)
    assert result.all() == [3.0, 3.0]


def seen_on_command_lines(name: str) -> list[str]:
    value, found = os.environ[name].encode(), []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [str(path)] if value in path.read_bytes() else []
        except OSError:
            continue
    return found


def test_values_of_variables_are_on_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", f"a-secret-{os.urandom(8).hex()}")
    file = tmp_path / "variables.sh"
    file.write_text("OTHER=another-secret-$((6 * 7))\n")
    for name in ("HF_TOKEN", "OTHER"):
        assert lattice.launch(seen_on_command_lines, (name,), workers_per_host=1, env_file=file, **ALONE).all() == [[]]


def test_hosts_by_ssh_and_what_is_wrong_with_each(tmp_path: Path) -> None:
    with server(tmp_path / "sshd") as up:
        config = tmp_path / "config"
        config.write_text(up.host_block("one") + up.host_block("two") + up.host_block("closed", Port="1"))
        python = tmp_path / "python"  # which finds the Lattice that is tested, installed or not
        python.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "src"} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        settings = {**ALONE, "ssh_config_file": config, "python": str(python)}
        result = lattice.launch(whoami, ("x",), workers_per_host=2, **{**settings, "hostnames": ["one", "two"]})
        assert [one[1] for one in result] == [0, 1, 2, 3]
        assert list(result.results) == ["one", "two"]
        with pytest.raises(lattice.AgentFailedError, match="closed") as caught:
            lattice.launch(whoami, workers_per_host=1, **{**settings, "hostnames": ["one", "closed"]})
        assert "refuses connections" in str(caught.value)
    assert not [process for process in read_processes() if process.parent == up.pid]
