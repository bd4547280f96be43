"""With ``-n``, the tests of a file that shares something expensive run in one process, so that it is made once."""

from __future__ import annotations

from typing import Any

import pytest

TOGETHER = ("tests/docker/", "tests/release/")
"""where one engine, image or upload serves all tests of a file"""


def unit(nodeid: str) -> str:
    """Name the work that a test belongs to: its file if that shares something, otherwise the test itself."""
    return nodeid.split("::")[0] if nodeid.startswith(TOGETHER) else nodeid


# Not xdist's own groups: they are lost with the pytest that we use, without a word.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class Sharing(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return unit(nodeid)

    return Sharing(config, log)
