"""Shows, at the end of a session, the figures that tests noted with ``record_property("figures", text)``."""

from __future__ import annotations

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    noted = [
        text
        for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
        for name, text in getattr(report, "user_properties", ())
        if name == "figures" and report.when == "call"
    ]
    if noted:
        terminalreporter.write_sep("=", "figures")
    for text in noted:
        terminalreporter.write_line(str(text))
