"""Tests that share something expensive: with ``-n`` they run in one process, where it is made once."""

from __future__ import annotations

from typing import Any

import pytest

TOGETHER = (
    "tests/release/",
    "tests/jobs/aws/test_end_to_end.py",
    "tests/jobs/aws/test_conformance.py",
)
"""where one upload or cloud serves all tests of a file"""

SHARED = {
    "tests/docker/": "on Docker",
    "tests/lab/test_cluster.py": "on Kubernetes",
    "tests/jobs/kubernetes/": "on Kubernetes",
}
"""where one engine or cluster serves all tests of all files"""


def unit(nodeid: str) -> str:
    """Name the work that a test belongs to: what it shares with others, or its own name."""
    for beginning, name in SHARED.items():
        if nodeid.startswith(beginning):
            return name
    return nodeid.split("::")[0] if nodeid.startswith(TOGETHER) else nodeid


# Not xdist's own groups: they are lost with the pytest that we use, without a word.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class Sharing(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return unit(nodeid)

    return Sharing(config, log)
