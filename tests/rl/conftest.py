"""Learners, workers and simulators leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lattice.checkpoint import client
from tests.leaks import may_leak, no_leaks

__all__ = ["may_leak", "no_leaks"]


@pytest.fixture(autouse=True)
def no_keeper(no_leaks: None) -> Iterator[None]:
    """End what writes the checkpoints of this process, which else stays until its end."""
    yield
    client._finish()
