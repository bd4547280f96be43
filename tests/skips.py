"""A skip always says why, and in CI (``CI=true``) one that is not listed here fails the session."""

from __future__ import annotations

import os
from collections import Counter

import pytest

ALLOWED_IN_CI: tuple[str, ...] = ("only in a long soak",)
"""Beginnings of the reasons for which a test may be skipped on a CI machine; everything else must be there."""

skipped: Counter[str] = Counter()


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Take the reason out of a report of something skipped."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def unexpected() -> list[str]:
    """List the reasons that fail this session."""
    if os.environ.get("CI") != "true":
        return []
    return sorted(reason for reason in skipped if not reason.startswith(ALLOWED_IN_CI))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        skipped[reason_of(report)] += 1


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        skipped[reason_of(report)] += 1


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    # A worker of xdist reports to the session that started it; only that one judges.
    if unexpected() and not hasattr(session.config, "workerinput") and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reason in unexpected():
        terminalreporter.write_line(f"FAILED: skipped in CI, {skipped[reason]} times: {reason}", red=True)
