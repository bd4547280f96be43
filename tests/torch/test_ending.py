"""A worker that ends right after a collective is not aborted by a thread of torch's."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lattice.torch.ending import wait_for_threads
from tests.agents import ROOT

SCRIPT = """
import torch.distributed as dist
from lattice.torch import ending, register
register()
register()
ending.wait_for_threads = lambda: print("waits")
if {grouped}:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
print("ends")
"""


@pytest.mark.parametrize(
    ("grouped", "variables", "printed"),
    [
        (True, {"LATTICE_RANK": "0"}, ["ends", "waits"]),
        (True, {}, ["ends"]),
        (False, {"LATTICE_RANK": "0"}, ["ends"]),
    ],
)
def test_only_a_worker_with_a_group_waits(grouped: bool, variables: dict[str, str], printed: list[str]) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LATTICE_")} | variables
    command = [sys.executable, "-c", SCRIPT.format(grouped=grouped)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == printed


def test_the_wait_lasts_until_the_threads_are_asleep() -> None:
    busy, enough, parked, over = (threading.Event() for _ in range(4))

    def work() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("pt_test")
        busy.set()
        while not enough.is_set():
            hashlib.pbkdf2_hmac("sha256", b"", b"", 200_000)  # without Python's lock
        parked.set()
        over.wait()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        busy.wait()
        assert not wait_for_threads(0.05)
        enough.set()
        parked.wait()
        assert wait_for_threads(30)
    finally:
        enough.set()
        over.set()
        thread.join()


def may_come_first() -> bool:
    """Tell whether a process may be scheduled before all others, and has two processors."""
    probe = "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))"
    allowed = subprocess.run([sys.executable, "-c", probe], stderr=subprocess.DEVNULL, check=False).returncode == 0
    return allowed and len(os.sched_getaffinity(0)) > 1


@pytest.mark.skipif(not may_come_first(), reason="real-time scheduling needs root, and two processors")
def test_a_thread_that_lets_go_of_a_tensor_at_the_end_is_waited_for() -> None:
    command = [sys.executable, str(ROOT / "tests" / "workers" / "gloo_ending.py")]
    environ = {**os.environ, "LATTICE_RANK": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
