"""What every test may ask for."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.etcd_server import EtcdServer, running

# Whatever started this may ignore them, as a shell does for what runs in its background: an agent would obey that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    """An etcd that many tests share: use a run id or prefix of your own, and do it no harm."""
    with running(EtcdServer()) as server:
        yield server


@pytest.fixture
def own_etcd() -> Iterator[EtcdServer]:
    """An etcd for one test, which may kill, pause or wipe it."""
    with running(EtcdServer()) as server:
        yield server
