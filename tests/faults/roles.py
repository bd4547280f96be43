"""Jobs of several roles on one store: one cluster of agents for each role."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.agents import ROOT, Cluster, cluster
from tests.etcd_server import EtcdServer
from tests.faults.conftest import address, conf
from tests.waiting import eventually

PEERING = str(ROOT / "tests" / "workers" / "peering.py")


class Job:
    """The roles of one job, learner first, which is also the one that serves an embedded store."""

    def __init__(self, folder: Path, stack: ExitStack, backend: str, endpoint: str) -> None:
        self.id = f"job-{uuid4().hex[:8]}"
        self._folder = folder
        self._stack = stack
        self._backend = backend
        self._endpoint = endpoint

    def role(self, name: str, *options: str, nnodes: str = "1", ends: str = "failure", **changes: object) -> Cluster:
        """Give a role of the job, without any agents."""
        folder = self._folder / uuid4().hex[:8]
        folder.mkdir(parents=True)
        given = ["--job_id", self.id, "--job_roles", "learner,worker", "--role", name, "--ends_job", ends]
        given += ["--rdzv_id", f"{self.id}-{name}", "--nnodes", nnodes, "--rdzv_backend", self._backend]
        if self._backend == "embedded":
            changes = {"is_host": int(name == "learner"), **changes}
        given += ["--rdzv_endpoint", self._endpoint, "--rdzv_conf", conf(**changes), "--shutdown_timeout", "10"]
        return self._stack.enter_context(cluster(folder, *given, *options))


@contextmanager
def job_on(folder: Path, backend: str, endpoint: str) -> Iterator[Job]:
    """Give a job whose agents are ended with the test."""
    with ExitStack() as stack:
        yield Job(folder, stack, backend, endpoint)


def on_etcd(server: EtcdServer) -> tuple[str, str]:
    """Give backend and endpoint."""
    return "etcd", address(server)


def peering(run: Cluster, how: str, role: str = "learner") -> list[str]:
    """Give the entry point of workers that deal with another role."""
    return [PEERING, str(run.said), how, role]


def first(run: Cluster) -> dict[str, Any]:
    """Give what the first worker of a role said of itself."""
    return eventually(run.workers, within=60)[0]


def listed(run: Cluster, role: str) -> list[str]:
    """Give what the file of a role's first agent says of another role."""
    found: dict[str, list[str]] = json.loads(Path(first(run)["LATTICE_PEERS_FILE"]).read_text())
    return found[role]


def places(run: Cluster) -> list[str]:
    """Give where the workers of a role are, as they themselves know it, by rank; of its newest round."""
    newest = max(int(worker["LATTICE_ROUND"]) for worker in run.workers())
    return [f"127.0.0.1:{worker['LATTICE_WORKER_PORT']}" for worker in run.workers(newest)]
