"""Several agents of one run on a real etcd, with short leases so that losses are noticed soon."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from tests.agents import Cluster, cluster
from tests.etcd_server import EtcdServer
from tests.leaks import no_leaks

__all__ = ["no_leaks"]

Form = Callable[..., Cluster]
LEASE = 2
"""seconds: the shortest lease that etcd grants"""


def conf(**changes: object) -> str:
    """Give an rdzv_conf with short times."""
    values = {"lease_ttl": LEASE, "last_call": 0.3, "grow_interval": 0, "request_timeout": 1, **changes}
    return ",".join(f"{key}={value}" for key, value in values.items())


def options(nnodes: str, endpoint: str, *more: str, run_id: str = "", **changes: object) -> list[str]:
    """Give the options of a run on etcd."""
    given = ["--nnodes", nnodes, "--rdzv_id", run_id or f"run-{uuid4().hex[:8]}", "--rdzv_endpoint", endpoint]
    return [*given, "--rdzv_conf", conf(**changes), "--shutdown_timeout", "5", *more]


def address(*servers: EtcdServer) -> str:
    """Give etcd's addresses as an option wants them."""
    return ",".join(f"{host}:{port}" for host, port in (server.endpoint for server in servers))


@pytest.fixture
def form(tmp_path: Path, etcd: EtcdServer) -> Iterator[Form]:
    """Make runs on the shared etcd: `form("2:3", "--max_restarts", "1", lease_ttl=5)`."""
    with ExitStack() as stack:

        def make(nnodes: str, *more: str, endpoint: str = "", run_id: str = "", **changes: object) -> Cluster:
            folder = tmp_path / uuid4().hex[:8]
            folder.mkdir()
            given = options(nnodes, endpoint or address(etcd), *more, run_id=run_id, **changes)
            return stack.enter_context(cluster(folder, *given))

        yield make
