"""Scales the time limit of every test by ``LATTICE_TEST_PATIENCE``, as all other deadlines of tests are."""

from __future__ import annotations

import pytest

from tests.waiting import patience


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = config.getoption("timeout", None)
    if chosen is not None:  # --timeout on the command line is taken as it is
        return
    for item in items:
        marker = item.get_closest_marker("timeout")
        seconds = float(marker.args[0] if marker else config.getini("timeout"))
        item.add_marker(pytest.mark.timeout(patience(seconds)), append=False)
