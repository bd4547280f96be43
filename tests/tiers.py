"""
Two tiers: what `make test` runs on any machine in a few minutes, and what `make lab` runs.

A test is left to `make lab` by one of two markers.

``lab``
    It needs network hosts, SLURM, containers, Kubernetes, hosts of a cloud, or an environment of TensorFlow, JAX or
    other training libraries. A test that asks for one of these without the marker fails (:func:`require_lab_tier`), so
    that none of them can slip into `make test`. Tests with the fixture ``kubernetes_cluster`` have it by themselves.

``long``
    It needs nothing special, but more than 20 seconds on two cores: thousands of schedules, many restarts, learning.
    Or it is one more variant of a test that `make test` has and that costs seconds of processor time: another seed,
    another step at which to crash, another storage. :func:`quick_and_long` tells them apart. A test that is marked
    ``soak`` is long by itself.

Real etcd, real sshd and real processes belong to both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

CLUSTER_TIMEOUT = 2700.0
"""seconds for a test on Kubernetes: for the first one it is built, if this machine never had it"""
LEFT_OUT = pytest.StashKey[Counter[str]]()
SLOWEST = 20.0
"""seconds that a test of `make test` may take; a slower one is named at the end of the session"""

_running: list[pytest.Item] = []


def is_in_lab(item: pytest.Item) -> bool:
    """Check whether a test is left to `make lab`."""
    return any(item.get_closest_marker(name) for name in ("lab", "long"))


def quick_and_long(quick: Iterable[object], long: Iterable[object]) -> list[object]:
    """
    List values for ``pytest.mark.parametrize``.

    :param quick: those of `make test`
    :param long: those that only `make lab` tries
    """
    return [*quick, *(pytest.param(value, marks=pytest.mark.long) for value in long)]


def require_lab_tier(what: str) -> None:
    """
    Fail a test that asks for something of the lab without being marked.

    :param what: what it asks for
    """
    if _running and not _running[-1].get_closest_marker("lab"):
        pytest.fail(f"{what} belongs to the lab: mark {_running[-1].nodeid} with pytest.mark.lab")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LEFT_OUT] = Counter()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.long)
        if "kubernetes_cluster" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.timeout(CLUSTER_TIMEOUT))  # any of them may be the first that asks for it


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    _running.append(item)
    try:
        return (yield)
    finally:
        _running.pop()


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        if is_in_lab(item):
            item.config.stash[LEFT_OUT]["lab" if item.get_closest_marker("lab") else "long"] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Tests are collected, and left out, by each worker of xdist; the session that started them tells.
    if hasattr(session.config, "workeroutput"):
        counts = session.config.stash[LEFT_OUT]
        session.config.workeroutput["left_out"] = dict(counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if hasattr(node, "workeroutput"):
        counts: dict[str, int] = node.workeroutput.get("left_out", {})
        node.config.stash[LEFT_OUT] = Counter[str](counts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash[LEFT_OUT]
    if "not lab" not in config.getoption("markexpr") or not left_out:
        return
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid] += report.duration  # type: ignore[assignment]
    for test, took in seconds.most_common():
        if took > SLOWEST:
            terminalreporter.write_line(
                f"SLOW: {test} took {took:.0f} s: split it, have it wait for less, or mark it long"
            )
    terminalreporter.write_line(
        f"Left out: {left_out['lab']} tests that need network hosts, SLURM, containers, Kubernetes, hosts of a cloud, "
        f"TensorFlow or JAX, and {left_out['long']} long ones. They run with: make lab (both: make test-all)."
    )
