"""The table, and the machine that it was made on."""

from __future__ import annotations

import datetime
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

from benchmarks.measure import Series
from benchmarks.scenarios import Limit, Scenario

HEADER = ("what", "Lattice", "torchrun", "ratio", "CPU s", "expected")
NOTES = """\
- Both sides are tried in turns (A B A B). A cell is the median, the range in brackets, and the number of tries.
- *CPU s* is what the agents and their helpers used, Lattice / torchrun, workers not counted: for *start* the whole
  command to its end, for *memory* up to the measurement, otherwise from the fault to the new group. On a busy machine
  it says more than the wall clock.
- torchrun's new workers import torch themselves; Lattice's are forked from an interpreter that has, one per node. Its
  own memory, shared with the workers, is not in the rows on memory: hence `--preload none` there.
- torchrun's last node goes, never the one that holds its c10d store: that would be the end of the run.
- Before a node goes, the round has lived for more than 10 s. Lattice's `lease_ttl` is 5 s, its default.\
"""


def machine() -> Iterator[str]:
    """Describe where this runs, one fact a line."""
    cpu = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield f"{os.cpu_count()} cores ({cpu}), {pages / 2**30:.0f} GB, Linux {platform.release()}"
    yield f"Python {platform.python_version()}, torch {version('torch')}, etcd {_etcd_version()}"
    yield f"Lattice {version('lattice-addons-pytorch')}"


def load() -> str:
    """Give the load of the last minute, which tells how far to trust the wall clock."""
    return f"{os.getloadavg()[0]:.1f}"


def table(results: Mapping[str, tuple[Scenario, Series, Series]]) -> list[str]:
    """Write the results as a table."""
    lines = ["| " + " | ".join(HEADER) + " |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for scenario, ours, theirs in results.values():
        lines.append(f"| **{scenario.title}** | | | | {_number(ours.cpu)} / {_number(theirs.cpu)} | |")
        figures = dict.fromkeys(name for one in (*ours.tries, *theirs.tries) for name in one.figures)
        for figure in figures:
            cells = [_cell(side, figure, scenario) for side in (ours, theirs)]
            expected = "; ".join(_verdict(limit, scenario, ours, theirs) for limit in _limits(scenario, figure))
            lines.append(f"| … {figure} | {cells[0]} | {cells[1]} | {_ratio(ours, theirs, figure)} | | {expected} |")
    return lines


def missed(results: Mapping[str, tuple[Scenario, Series, Series]]) -> list[str]:
    """List the scenarios in which Lattice did not reach what is expected of it."""
    return [
        scenario.name
        for scenario, ours, theirs in results.values()
        if any(not _holds(limit, ours, theirs) for limit in scenario.limits)
    ]


def document(results: Mapping[str, tuple[Scenario, Series, Series]], loads: tuple[str, str], took: float) -> str:
    """Write the whole page."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    facts = [
        f"{today}, `make bench`, {took / 60:.0f} minutes, load of the machine {loads[0]} at the beginning, "
        f"{loads[1]} at the end (the benchmark's own included)",
        *machine(),
    ]
    return "\n".join(
        [
            "# Lattice beside torchrun",
            "",
            *(f"- {fact}" for fact in facts),
            "",
            *table(results),
            "",
            NOTES,
            "",
        ]
    )


def _limits(scenario: Scenario, figure: str) -> list[Limit]:
    return [limit for limit in scenario.limits if limit.figure == figure]


def _cell(series: Series, figure: str, scenario: Scenario) -> str:
    count = len(series.tries)
    hung, gave_up = series.missing(figure)
    median, spread = series.median(figure), series.spread(figure)
    parts = []
    if median is not None and spread is not None:
        span = f"[{_number(spread[0])}–{_number(spread[1])}]"  # noqa: RUF001
        parts.append(f"{_number(median)} {scenario.unit} {span} ×{count - hung - gave_up}")  # noqa: RUF001
    if hung:
        parts.append(f"{hung} of {count} none in {scenario.cap:.0f} s")
    if gave_up:
        parts.append(f"{gave_up} of {count} gave up")
    return ", ".join(parts)


def _ratio(ours: Series, theirs: Series, figure: str) -> str:
    mine, other = ours.median(figure), theirs.median(figure)
    return f"{other / mine:.1f}×" if mine and other else ""  # noqa: RUF001


def _holds(limit: Limit, ours: Series, theirs: Series) -> bool:
    mine, other = ours.median(limit.figure), theirs.median(limit.figure)
    if mine is None:
        return False
    return mine <= limit.below if limit.below else other is None or other / mine >= limit.faster


def _verdict(limit: Limit, scenario: Scenario, ours: Series, theirs: Series) -> str:
    asked = f"≤ {limit.below:g} {scenario.unit}" if limit.below else f"≥ {limit.faster:g}×"  # noqa: RUF001
    return f"{asked}: {'yes' if _holds(limit, ours, theirs) else '**no**'}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"  # noqa: RUF001
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _etcd_version() -> str:
    if not shutil.which("etcd"):
        return "not there: what needs it is left out"
    answer = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=False).stdout
    return answer.partition(":")[2].split()[0] if ":" in answer else "unknown"
