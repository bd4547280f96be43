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


Note = Callable[[str], None]
Figures = Callable[[str, Sequence[float]], None]


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Note:
    """Note something that the summary of the session shows."""
    return lambda text: record_property("figures", text)


@pytest.fixture
def figures(note: Note) -> Figures:
    """Note how long recoveries took."""

    def of(what: str, seconds: Sequence[float]) -> None:
        text = f"{len(seconds)} rounds, median {statistics.median(seconds):.2f}s, longest {max(seconds):.2f}s"
        note(f"{what}: {text}")

    return of
