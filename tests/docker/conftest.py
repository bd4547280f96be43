"""One Docker engine for all tests here, with the image of this repository in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.engine import Engine, engine

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def built() -> Iterator[Engine]:
    """An engine that has ``lattice-agent``, which the repository's Dockerfile makes."""
    with engine() as up:
        up.docker("build", "-q", "-t", "lattice-agent", "--build-arg", "BASE=local/base", str(ROOT), within=600)
        up.docker("tag", "lattice-agent", "hello_elastic:dev")
        yield up
