"""Real workers, started by a real guard, for this process or for one that a test may kill."""

from __future__ import annotations

import os
import select
import sys
import uuid
from collections.abc import Callable, Iterator

import pytest

from lattice.process.spawning import Guard
from lattice.process.workers import Exit, Worker
from tests.leaks import no_leaks

__all__ = ["no_leaks"]

MARKER = "LATTICE_AGENT"
INCARNATION = f"test-{uuid.uuid4()}"
PYTHON = (sys.executable, "-I", "-S", "-c")


@pytest.fixture
def guard() -> Iterator[Guard]:
    guard = Guard()
    yield guard
    guard.close()


@pytest.fixture
def start(guard: Guard) -> Iterator[Callable[..., tuple[Worker, int]]]:
    """Start a worker; gives it and the read end of a pipe that is its standard output and error."""
    opened: list[int] = []
    workers: list[Worker] = []

    def start(*argv: str, environ: dict[str, str] | None = None, cwd: str = "/") -> tuple[Worker, int]:
        read, write = os.pipe()
        opened.append(read)
        variables = {"PATH": os.environ["PATH"], MARKER: INCARNATION, **(environ or {})}
        try:
            workers.append(guard.spawn(argv, variables, cwd, None, write, write, MARKER))
        finally:
            os.close(write)
        return workers[-1], read

    yield start
    for worker in workers:
        worker.signal(9)
        if worker.pidfd >= 0:
            ended(worker)
        worker.close()
    for descriptor in opened:
        os.close(descriptor)


def ended(worker: Worker, within: float = 30.0) -> Exit:
    """Wait until a worker has ended, by its pidfd."""
    ready, _, _ = select.select([worker], [], [], within)
    assert ready, f"worker {worker.pid} did not end within {within}s"
    exit = worker.poll()
    assert exit is not None
    return exit


def read_all(descriptor: int) -> bytes:
    """Read until end-of-file."""
    parts = []
    while part := os.read(descriptor, 65536):
        parts.append(part)
    return b"".join(parts)


def read_line(descriptor: int) -> str:
    """Read one line, byte by byte: what follows stays in the pipe."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        assert byte, f"end-of-file after {line!r}"
        line += byte
    return line.decode().strip()
