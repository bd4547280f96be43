"""A worker's process group: real ones of gloo, formed, used and let go of."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lattice.errors import ResultNotReturned, UsageError
from lattice.launching.remains import MARK, Nothing, leave_result, read
from lattice.launching.task import Task
from tests.etcd_server import free_ports
from tests.launching.functions import busy_at_the_end, finalizers, has_torch, own_group, sum_of_ranks
from tests.launching.workers import one, run
from tests.waiting import patience


def test_two_workers_form_a_group() -> None:
    for ended in run(Task(sum_of_ranks, timeout=60), 2):
        total, backend, world = ended.value()
        assert (total.tolist(), backend, world) == ([3.0], "gloo", 2)
        assert ended.code == 0
        assert ended.complaints() == b""


def test_a_function_may_destroy_the_group_itself() -> None:
    assert one(own_group, backend="gloo").value() is True


def test_none_forms_no_group() -> None:
    assert one(has_torch).value() is False


def test_an_unknown_backend_is_refused_with_those_that_are_there() -> None:
    error = one(os.getpid, backend="goo").exception()
    assert isinstance(error, UsageError)
    assert "'goo'" in str(error)
    assert "gloo" in str(error)


@pytest.fixture
def memory() -> Any:
    descriptor = os.memfd_create("remains")
    yield descriptor
    os.close(descriptor)


def test_half_a_result_is_nothing(memory: int) -> None:
    assert read(memory) == Nothing()
    leave_result(memory, [1, 2], rank=0, host="here")
    os.pwrite(memory, bytes(MARK.size), 0)  # all is there but the mark
    assert read(memory) == Nothing()
    assert read(memoryview(b"")) == Nothing()


def test_a_result_that_was_written_in_part_is_nothing(memory: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))  # the memory ends in the middle of it
    try:
        with pytest.raises(ResultNotReturned, match=r"rank 3 on here returned a value of type list .*too large"):
            leave_result(memory, [b"x" * (4 << 20)], rank=3, host="here")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.fstat(memory).st_size == 1 << 20
    assert read(memory) == Nothing()


def test_results_are_read_without_a_copy_from_memory_that_came_from_elsewhere(memory: int) -> None:
    import numpy as np

    leave_result(memory, np.arange(1 << 17), rank=0, host="here")
    content = bytearray(os.pread(memory, os.fstat(memory).st_size, 0))
    left = read(memoryview(content))
    array = left.value(0, "here")  # type: ignore[union-attr]
    array[0] = 77
    assert (77).to_bytes(8, "little") in bytes(content[:4096])


@pytest.mark.parametrize("variables", [{}, {"LD_PRELOAD": ""}], ids=["quick", "slow"])
def test_what_is_left_to_do_at_the_end_is_done(variables: dict[str, str]) -> None:
    (ended,) = run(Task(busy_at_the_end, backend=None), variables=variables)
    assert ended.value() == 5
    assert ended.code == 0
    assert sorted(ended.stdout.splitlines()) == [b"C library", b"exit function", b"thread"]


def test_of_what_is_left_to_do_only_the_operators_of_torch_are_let_be() -> None:
    assert one(finalizers).stdout.splitlines() == [b"finalizer"]


FAST_AND_SLOW = """
import os, sys, time
from pathlib import Path
import torch.distributed as dist
from lattice.launching.worker import form_group

formed = Path(sys.argv[1])
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": sys.argv[2], "WORLD_SIZE": "2"}
slow = os.fork()
os.environ["RANK"] = "1" if slow else "0"
if not slow:
    form = dist.init_process_group

    def formed_late(*arguments, **options):
        form(*arguments, **options)
        time.sleep(0.5)  # as if this rank had not finished to connect
        formed.touch()

    dist.init_process_group = formed_late
form_group("gloo", 60)
assert formed.exists(), "this rank could have left while the other one still connected"
if not slow:
    os._exit(0)
assert os.waitpid(slow, 0)[1] == 0
os._exit(0)
"""


def test_no_rank_runs_its_function_before_all_have_formed_the_group(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FAST_AND_SLOW, str(tmp_path / "formed"), str(free_ports(1)[0])],
        check=False,
        capture_output=True,
        text=True,
        timeout=patience(120),
    )
    assert ended.returncode == 0, ended.stderr
