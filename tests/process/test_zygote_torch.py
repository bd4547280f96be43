"""Forked workers with torch inside: sound, different in chance, and smaller together."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lattice.process.ports import ReservedPorts
from lattice.process.spawning import Guard
from lattice.process.workers import Worker
from tests.process.conftest import ended, read_line
from tests.process.warm import WORKERS, Stage, python, stage

pytest.importorskip("torch")
WORLD = 2


@pytest.fixture(scope="module")
def torches() -> Iterator[Stage]:
    guard = Guard()
    argv = python("-u", str(WORKERS / "zygote_group.py"), "wait")
    with stage(guard, argv, Path("/"), OMP_NUM_THREADS="1") as it:
        zygote = it.warm_up("torch", "torch.distributed", spares=0)
        assert zygote.take_notes() == (), "torch starts no thread, opens nothing and reads no rank"
        yield it
    guard.close()


def proportional_memory(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def group(it: Stage, *, warm: bool, world: int = WORLD) -> tuple[list[dict[str, object]], int]:
    """Run a group; gives what each worker said, and their proportional memory when all have."""
    ports = ReservedPorts(1)
    hold, release = os.pipe()
    workers: list[Worker] = []
    reads = []
    for rank in range(world):
        read, write = os.pipe()
        reads.append(read)
        late = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
        late["MASTER_PORT"] = str(ports.ports[0])
        if warm:
            workers.append(it.fork(hold, write, 2, **late))
        else:
            workers.append(it.guard.spawn(it.argv, {**it.environ, **late}, it.cwd, hold, write, 2, "LATTICE_AGENT"))
        os.close(write)
    os.close(hold)
    said = [json.loads(read_line(read)) for read in reads]
    memory = sum(proportional_memory(worker.pid) for worker in workers)
    os.close(release)
    assert [ended(worker).status for worker in workers] == [0] * world
    for worker in workers:
        worker.close()
    for read in reads:
        os.close(read)
    ports.close()
    return said, memory


def test_a_group_of_forked_workers(torches: Stage) -> None:
    said, memory = group(torches, warm=True)
    assert [facts["sum"] for facts in said] == [3.0, 3.0]
    for name in ("torch", "seed", "numpy"):
        assert len({facts[name] for facts in said}) == WORLD, f"both drew the same from {name}"
    assert [(facts["threads"], facts["blas"]) for facts in said] == [(1, None)] * WORLD
    _, cold = group(torches, warm=False)
    assert memory < cold


BLAS = """
import os, numpy
a = numpy.ones((600, 600))
a @ a
print(len(os.listdir('/proc/self/task')), os.environ.get('OPENBLAS_NUM_THREADS'))
"""


@pytest.mark.parametrize("environ", [{}, {"OPENBLAS_NUM_THREADS": "2"}, {"OMP_NUM_THREADS": "1"}])
def test_openblas_has_the_threads_that_it_would_have_had(guard: Guard, tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "main.py").write_text(BLAS)
    with stage(guard, python("-u", "main.py"), tmp_path, **environ) as it:
        assert it.warm_up("numpy").facts["imported"] == ["numpy"]
        assert it.warm() == it.cold()
