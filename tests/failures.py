"""
Writes the failed tests of a session to a file: ``--failures FILE``.

``scripts/run_lab.py`` reads it, to run each of them once more and to keep the log of the first failure.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import skips

OPTION = "--failures"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, metavar="FILE", help="write the failed tests and their logs to a JSON file")


def pytest_configure(config: pytest.Config) -> None:
    # A worker of xdist sends its reports to the session that started it; only that one writes.
    if (path := config.getoption(OPTION)) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(Path(path)))


class _Recorder:
    """Collects the logs of the phases that failed: set-up, call and teardown."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._logs: dict[str, str] = {}
        self._not_collected: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            sections = "".join(f"\n--- {name} ---\n{text}" for name, text in report.sections)
            log = f"{report.when} failed after {report.duration:.1f} s\n{report.longreprtext}\n{sections}\n"
            self._logs[report.nodeid] = self._logs.get(report.nodeid, "") + log

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._not_collected.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        found = {"logs": self._logs, "final": [*self._not_collected, *skips.unexpected()]}
        self._path.write_text(json.dumps(found))
