"""A test that leaves a process, a descriptor or a thread behind fails, and says what it left."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lattice.process.guard import read_processes
from tests.waiting import eventually

# gRPC keeps its pollers for as long as the process lives, from the first call on.
KEPT_BY_GRPC = ("anon_inode:[eventpoll]", "anon_inode:[eventfd]")


def children() -> dict[str, str]:
    """Name all running children of this process; ended ones that nobody waited for are no danger."""
    found = {}
    for process in read_processes():
        if process.parent == os.getpid() and not process.ended:
            try:
                command = (
                    Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
            except OSError:
                continue
            found[f"process {process.pid}"] = command
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


def everything() -> set[tuple[str, str]]:
    """Name all that a test could leave behind."""
    return {*children().items(), *descriptors().items(), *threads().items()}


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compare what is there after a test with what was there before it. A test that asks for `may_leak` is let off."""
    before = everything()
    yield
    if "may_leak" in request.fixturenames:
        return

    def nothing_left() -> bool:
        if everything() - before:
            gc.collect()  # something may be held by a cycle of garbage alone
        left = everything() - before
        assert not left, "left behind: " + ", ".join(f"{name} ({what})" for name, what in sorted(left))
        return True

    eventually(nothing_left, within=10)


@pytest.fixture
def may_leak() -> None:
    """Let a test keep what a library never gives back."""
