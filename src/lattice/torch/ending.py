"""
Keeps torch's own threads from aborting a worker whose script has ended well.

A thread of gloo that has done its part of a collective wakes the script first and then lets go of the tensors. For
that it needs Python's lock. A script that ends right after the collective holds the lock, and Python ends every thread
that still waits for it when the interpreter is finalized, by ``pthread_exit``. That unwinds the thread's stack through
a destructor that may not throw (``c10::TensorImpl::decref_pyobject``), so the C++ library ends the whole process:
"terminate called without an active exception", SIGABRT. It has nothing to do with Lattice (pytorch/pytorch issues 38228
and 190489), it is rare, and an agent cannot tell it from a real failure, so it would cost a restart.

So before a worker's interpreter is finalized, it gives up the lock until torch's threads are asleep. What is not waited
for: a collective that the script itself did not wait for, because its thread sleeps until the other ranks come.
``torch.distributed.destroy_process_group()`` is left to the script: a model may hold the group, and then its threads
live on; and a backend may wait there for ranks that are gone. ``os._exit`` in place of Python's own end would lose what
is in files that the script left open.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from pathlib import Path

LONGEST_WAIT = 1.0
"""seconds after which the worker ends in any case"""
PAUSE = 0.001
"""seconds for which Python's lock is given up: a thread that waits for it is awake at once"""
LOOKS = 2
"""looks in a row that must find all threads asleep: one may come just as a thread begins to wait for the lock"""
PREFIX = "pt_"
"""what the names of torch's own threads begin with"""

_registered = False


def register() -> None:
    """Make this process wait for torch's threads at its end if it is a worker by then; again is fine."""
    global _registered
    if not _registered:
        _registered = True
        atexit.register(_at_exit)


def wait_for_threads(within: float = LONGEST_WAIT) -> bool:
    """
    Wait until all of torch's threads are asleep.

    :param within: seconds after which to give up
    :return: whether they are
    """
    deadline = time.monotonic() + within
    asleep = 0
    while asleep < LOOKS:
        time.sleep(PAUSE)
        asleep = 0 if any(map(_is_busy, _threads())) else asleep + 1
        if asleep < LOOKS and time.monotonic() >= deadline:
            return False
    return True


def _at_exit() -> None:
    # Asked only now: the process that workers are forked from has imported torch before it is any of them.
    distributed = sys.modules.get("torch.distributed")
    if "LATTICE_RANK" not in os.environ or distributed is None:
        return
    try:
        if distributed.is_initialized():
            wait_for_threads()
    except (AttributeError, OSError):
        pass  # another torch, or no /proc: the worker ends as it would without Lattice


def _threads() -> list[Path]:
    return [task for task in Path("/proc/self/task").iterdir() if _read(task / "comm").startswith(PREFIX)]


def _is_busy(task: Path) -> bool:
    state = _read(task / "stat").rpartition(")")[2].split()
    return bool(state) and state[0] != "S"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # the thread has ended
