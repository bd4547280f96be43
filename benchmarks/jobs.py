"""One try: the agents of a job, what its workers stamped, and a fault at a known moment."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks import processes
from benchmarks.etcd import SERVERS

ROOT = Path(__file__).resolve().parent.parent
WORKERS = ROOT / "benchmarks" / "workers"
POLL = 0.005
START_TIMEOUT = 180.0


class NeverStartedError(RuntimeError):
    """A job did not even begin: there is nothing to measure."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a worker said of itself."""

    pid: int
    rank: int
    world: int
    at: float


@dataclass(frozen=True, slots=True)
class Formed:
    """A generation of workers that is complete, and when its last worker said so."""

    pids: tuple[int, ...]
    """by rank"""
    at: float


def clean_environment() -> dict[str, str]:
    """Give this process's environment without what would configure an agent, or make Python slower than it is."""
    slow = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "OMP_NUM_THREADS")
    unwanted = ("LATTICE_", "PET_", "TORCHELASTIC_", "TORCHRUNX_", *slow)
    return {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}


class Job:
    """The agents of one try. Leaving the context ends every process that this one started, except for etcd."""

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="lattice-bench-")
        self.folder = Path(self._temporary.name)
        self.stamps_folder = self.folder / "stamps"
        self.stamps_folder.mkdir()
        self.agents: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        processes.kill_descendants(keep=SERVERS)
        for agent in self.agents:
            agent.poll()
        self._temporary.cleanup()

    def start(self, argv: Sequence[str], environ: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        """
        Start one agent.

        :param argv: its command line
        :param environ: variables on top of those of this process
        """
        with (self.folder / f"agent{len(self.agents)}.log").open("wb") as log:
            agent = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**clean_environment(), **(environ or {})},
                cwd=self.folder,
                start_new_session=True,
            )
        self.agents.append(agent)
        return agent

    def stamps(self, kind: str, since: float) -> list[Stamp]:
        """Read the stamps that workers of one kind left after a moment."""
        found = []
        for path in self.stamps_folder.glob(f"*.{kind}"):
            with suppress(OSError):
                found.append(Stamp(**json.loads(path.read_text())))
        return [one for one in found if one.at > since]

    def formed(self, world: int, since: float, kind: str = "group") -> Formed | None:
        """
        Look for the first complete generation of workers after a moment.

        :param world: how many they are
        :param since: the moment
        :param kind: the stamp that each has to leave
        """
        first: dict[int, Stamp] = {}
        for one in sorted(self.stamps(kind, since), key=lambda one: one.at):
            if one.world == world:
                first.setdefault(one.rank, one)
        if len(first) < world:
            return None
        return Formed(tuple(first[rank].pid for rank in range(world)), max(one.at for one in first.values()))

    def wait_formed(
        self, world: int, since: float, within: float, kind: str = "group", poll: float = POLL
    ) -> Formed | None:
        """Wait for such a generation; None if there is none in time, or nobody who could bring it about."""
        deadline = time.monotonic() + within
        while (found := self.formed(world, since, kind)) is None and time.monotonic() < deadline:
            if all(agent.poll() is not None for agent in self.agents):
                break
            time.sleep(poll)
        return found

    def wait_begun(self, world: int, kind: str = "group", poll: float = POLL) -> Formed:
        """Wait for the first generation of workers."""
        formed = self.wait_formed(world, 0.0, START_TIMEOUT, kind, poll)
        if formed is None:
            raise NeverStartedError(f"no {world} workers in {START_TIMEOUT:.0f}s:\n{self.output()}")
        return formed

    def worker_pids(self) -> set[int]:
        """Give the processes that ever said they were workers."""
        return {one.pid for one in self.stamps("line", 0.0)}

    def tree(self, agent: subprocess.Popen[bytes]) -> list[int]:
        """Give an agent and all that descends from it, except for the workers."""
        return [agent.pid, *processes.descendants(agent.pid, without=self.worker_pids())]

    def output(self) -> str:
        """Give the end of what the agents wrote."""
        logs = sorted(self.folder.glob("agent*.log"))
        return "\n".join(f"--- {log.stem}\n{log.read_text(errors='replace')[-2000:]}" for log in logs)
