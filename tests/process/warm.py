"""One command, started warm and cold with all else equal."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lattice.process.preloading import PythonCommand, read_command
from lattice.process.spawning import Guard
from lattice.process.warming import DEVICES, Zygote
from lattice.process.workers import Exit, Worker
from tests.process.conftest import INCARNATION, MARKER, ended
from tests.waiting import eventually, patience

LATE = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
WORKERS = Path(__file__).parents[1] / "workers"


@dataclass
class Result:
    exit: Exit
    stdout: bytes
    stderr: bytes


def variables(**more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", MARKER: INCARNATION, **more}


class Stage:
    """Starts workers of one command, and collects what they say."""

    def __init__(self, guard: Guard, argv: Sequence[str], cwd: Path, environ: Mapping[str, str]) -> None:
        self.guard = guard
        self.argv = tuple(argv)
        self.cwd = str(cwd)
        self.environ = dict(environ)
        self.zygote: Zygote | None = None

    def command(self) -> PythonCommand:
        command = read_command(self.argv, self.environ, self.cwd)
        assert isinstance(command, PythonCommand), command
        return command

    def warm_up(self, *preload: str, spares: int = 1, devices: Sequence[str] = DEVICES) -> Zygote:
        self.zygote = Zygote(self.guard, self.command(), self.environ, self.cwd, MARKER, preload, LATE, spares, devices)
        return settled(self.zygote)

    def cold(self, stdin: int | None = None, **late: str) -> Result:
        return collected(
            lambda out, err: self.guard.spawn(self.argv, {**self.environ, **late}, self.cwd, stdin, out, err, MARKER)
        )

    def warm(self, stdin: int | None = None, **late: str) -> Result:
        return collected(lambda out, err: self.fork(stdin, out, err, **late))

    def fork(self, stdin: int | None, out: int, err: int, **late: str) -> Worker:
        assert self.zygote is not None
        worker = self.zygote.fork({**self.environ, **late}, self.cwd, stdin, out, err)
        assert worker is not None, self.zygote.reason
        return worker


def settled(zygote: Zygote) -> Zygote:
    """Wait until a zygote is ready, or never will be."""

    def decided() -> bool:
        zygote.handle()
        return not zygote.starting and zygote.deadline is None

    eventually(decided, within=120)
    return zygote


@contextmanager
def stage(guard: Guard, argv: Sequence[str], cwd: Path, **environ: str) -> Iterator[Stage]:
    it = Stage(guard, argv, cwd, variables(**environ))
    try:
        yield it
    finally:
        if it.zygote is not None:
            it.zygote.close()
        guard.sweep()


def collected(start: Callable[[int, int], Worker]) -> Result:
    """Start a worker and read all that it writes until its end."""
    pipes = [os.pipe(), os.pipe()]
    worker = start(pipes[0][1], pipes[1][1])
    texts: list[bytes] = [b"", b""]

    def read(index: int) -> None:
        while part := os.read(pipes[index][0], 65536):
            texts[index] += part

    for _, write in pipes:
        os.close(write)
    readers = [threading.Thread(target=read, args=(index,)) for index in range(2)]
    for reader in readers:
        reader.start()
    exit = ended(worker, within=60)
    for reader in readers:
        reader.join(patience(60))
    for read_end, _ in pipes:
        os.close(read_end)
    worker.close()
    return Result(exit, *texts)


def python(*words: str) -> tuple[str, ...]:
    return (sys.executable, *words)
