"""Starts the worker program as the agents of a launch would: real processes, and files of memory of this one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lattice.launching import remains
from lattice.launching.task import Task, pack
from tests.etcd_server import free_ports
from tests.waiting import patience

ROOT = Path(__file__).resolve().parents[2]
WITHIN = 120.0


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    stdout: bytes
    stderr: bytes
    left: remains.Result | remains.Raised | remains.Nothing
    rank: int
    records: bytes = b""

    def value(self) -> Any:
        assert isinstance(self.left, remains.Result), (self, self.stderr.decode())
        return self.left.value(self.rank, "here")

    def exception(self) -> BaseException:
        assert isinstance(self.left, remains.Raised), self
        return self.left.exception()

    def complaints(self) -> bytes:
        """Give its standard error, without what torch says where a machine's own name does not resolve."""
        return re.sub(rb"^\[W\d.*hostname.*\n", b"", self.stderr, flags=re.MULTILINE)


def run(
    task: Task,
    world: int = 1,
    *,
    cwd: str = "/",
    variables: Mapping[str, str] | None = None,
    sources: bool = True,
    before: str = "",
) -> list[Ended]:
    """Run a task in a world of workers; `before` is code that each of them runs first, as a warm interpreter would."""
    payload = os.memfd_create("payload")
    left = [os.memfd_create("remains") for _ in range(world)]
    records = [os.memfd_create("records") for _ in range(world)]
    start = ["-c", f"{before}\nimport runpy; runpy.run_module('lattice.launching.worker', None, '__main__', True)"]
    master = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0]), "WORLD_SIZE": str(world)}
    workers = []
    try:
        pack(task, sources=sources).write(payload)
        for rank in range(world):
            environ = {
                "PATH": os.environ["PATH"],
                "PYTHONPATH": f"{ROOT}/src",
                "OMP_NUM_THREADS": "1",
                "LATTICE_LAUNCH_PAYLOAD": f"/proc/{os.getpid()}/fd/{payload}",
                "LATTICE_LAUNCH_REMAINS": f"/proc/{os.getpid()}/fd/{left[rank]}",
                "LATTICE_LAUNCH_RECORDS": f"/proc/{os.getpid()}/fd/{records[rank]}",
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                **master,
                **(variables or {}),
            }
            argv = [sys.executable, *(start if before else ["-m", "lattice.launching.worker"])]
            workers.append(subprocess.Popen(argv, env=environ, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        ended = []
        for rank, worker in enumerate(workers):
            out, err = worker.communicate(timeout=patience(WITHIN))
            said = os.pread(records[rank], 1 << 20, 0)
            ended.append(Ended(worker.returncode, out, err, remains.read(left[rank]), rank, said))
        return ended
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
        for descriptor in (payload, *left, *records):
            os.close(descriptor)


def one(func: Any, *args: Any, backend: str | None = None, **kwargs: Any) -> Ended:
    """Run a function in one worker without a process group."""
    return run(Task(func, args, kwargs, backend))[0]


def run_script(folder: Path, text: str, *, cwd: str = "/") -> str:
    """Run a caller's script, which may use this module, and give what it printed."""
    script = folder / "caller.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=patience(WITHIN),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
