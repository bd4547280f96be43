"""Run one schedule instead of thousands: ``pytest tests/simulation --seed N``, or LATTICE_SIM_SEED=N."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="the one simulated schedule to run")


@pytest.fixture
def one_seed(request: pytest.FixtureRequest) -> int | None:
    """The only seed to run, None for all."""
    given: int | None = request.config.getoption("--seed", None)
    named = os.environ.get("LATTICE_SIM_SEED")
    return given if given is not None else int(named) if named else None
