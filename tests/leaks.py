"""A test that leaves a process, a descriptor or a thread behind fails, and says what it left."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lattice.process.guard import read_process
from tests.waiting import eventually

# gRPC keeps its pollers for as long as the process lives, from the first call on.
KEPT_BY_GRPC = ("anon_inode:[eventpoll]", "anon_inode:[eventfd]")


def pids() -> frozenset[str]:
    """List the numbers of all processes of the machine."""
    return frozenset(name for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 (a tenth of the time)


def children(before: frozenset[str]) -> dict[str, str]:
    """
    Name the running children of this process; one that ended and was not waited for is no danger.

    :param before: processes that need no look: those that were there before the test
    """
    found = {}
    for pid in pids() - before:
        process = read_process(int(pid))
        if process is not None and process.parent == os.getpid() and not process.ended:
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found[f"process {pid}"] = command
    return found


def descriptors() -> dict[str, str]:
    """Name all open descriptors of this process with what they lead to."""
    found = {}
    for entry in list(Path("/proc/self/fd").iterdir()):
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if not (target in KEPT_BY_GRPC and "grpc" in sys.modules):
            found[f"descriptor {entry.name}"] = target
    return found


def threads() -> dict[str, str]:
    """Name all Python threads."""
    return {f"thread {thread.ident}": thread.name for thread in threading.enumerate()}


def resources() -> set[tuple[str, str]]:
    """Name all that a test could leave behind in this process."""
    return {*descriptors().items(), *threads().items()}


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compare what is there after a test with what was there before it. A test that asks for `may_leak` is let off."""
    processes, before = pids(), resources()
    yield
    if "may_leak" in request.fixturenames:
        return

    def left() -> set[tuple[str, str]]:
        return {*children(processes).items(), *(resources() - before)}

    def nothing_left() -> bool:
        leaked = left()
        if leaked:
            gc.collect()  # something may be held by a cycle of garbage alone
            leaked = left()
        assert not leaked, "left behind: " + ", ".join(f"{name} ({what})" for name, what in sorted(leaked))
        return True

    eventually(nothing_left, within=10)


@pytest.fixture
def may_leak() -> None:
    """Let a test keep what a library never gives back."""
