"""Every implementation of the store contract, behind one fixture."""

from __future__ import annotations

import ssl
import threading
import uuid
from collections.abc import Iterator

import pytest

from lattice.stores import Store
from lattice.stores.memory import MemoryStore
from tests.etcd_server import EtcdServer
from tests.waiting import eventually

SECRET = b"a secret of the tests"


@pytest.fixture(params=["memory", "etcd", "served", "secured"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(backend: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    """An implementation of the contract; those with a server get a client of it."""
    before = threading.active_count()
    if backend == "memory":
        memory = MemoryStore()
        yield memory
        memory.close()
    elif backend == "etcd":
        from lattice.stores.etcd import EtcdStore

        server: EtcdServer = request.getfixturevalue("etcd")
        etcd = EtcdStore((server.endpoint,), request_timeout=10.0)
        yield etcd
        etcd.close()
    else:
        from lattice.stores.served import StoreServer, served_at

        contexts: tuple[ssl.SSLContext | None, ssl.SSLContext | None] = (None, None)
        if backend == "secured":
            from tests.stores.certificates import contexts_of

            contexts = contexts_of(request.getfixturevalue("tmp_path"))
        behind = MemoryStore()
        serving = StoreServer(behind, "127.0.0.1", 0, SECRET, contexts[0])
        served = served_at((("127.0.0.1", serving.port),), SECRET, 10.0, contexts[1])
        yield served
        served.close()
        serving.close()
        behind.close()
    eventually(lambda: threading.active_count() <= before)


@pytest.fixture
def root() -> str:
    """A prefix that no other test uses: the etcd is shared."""
    return f"/lattice/{uuid.uuid4().hex}/"
