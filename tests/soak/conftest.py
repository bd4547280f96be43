"""How long to soak, and the figures that come out of it."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence

import pytest

from tests.leaks import no_leaks

__all__ = ["no_leaks"]


@pytest.fixture
def rounds() -> int:
    """How often each fault is repeated: 10, or LATTICE_SOAK_ROUNDS."""
    return int(os.environ.get("LATTICE_SOAK_ROUNDS", "10"))


@pytest.fixture
def seed() -> int:
    """What chance begins with: 1, or LATTICE_SOAK_SEED."""
    return int(os.environ.get("LATTICE_SOAK_SEED", "1"))


Figures = Callable[[str, Sequence[float]], None]


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Figures:
    """Note how long recoveries took; the summary of the session shows it."""

    def note(what: str, seconds: Sequence[float]) -> None:
        text = f"{len(seconds)} rounds, median {statistics.median(seconds):.2f}s, longest {max(seconds):.2f}s"
        record_property("figures", f"{what}: {text}")

    return note
