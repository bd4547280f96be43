"""One node by itself, on the store that needs no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import Cluster, cluster
from tests.leaks import no_leaks

__all__ = ["no_leaks"]


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Cluster]:
    """A place for an agent that is alone: agents with nothing but the options of the test."""
    with cluster(tmp_path) as made:
        yield made
