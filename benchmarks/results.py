"""One run of the benchmarks with everything that it measured, for people and for programs."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.measure import Series, Sides
from benchmarks.scenarios import Scenario


@dataclass(frozen=True, slots=True)
class Compared:
    """A scenario and what came of it."""

    scenario: Scenario
    sides: Sides


@dataclass(frozen=True, slots=True)
class Run:
    """One run."""

    date: str
    command: str
    took: float
    """seconds"""
    loads: tuple[str, str]
    """of the machine at the beginning and at the end: how far to trust the wall clock"""
    machine: tuple[str, ...]
    compared: tuple[Compared, ...]


def today() -> str:
    """Give the date."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def load() -> str:
    """Give the load of the last minute."""
    return f"{os.getloadavg()[0]:.1f}"


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


def as_json(run: Run) -> str:
    """Write all tries and their medians down, and how the chart names them."""
    facts = {
        "date": run.date,
        "command": run.command,
        "seconds": round(run.took),
        "loads": list(run.loads),
        "machine": list(run.machine),
        "scenarios": [_scenario(one) for one in run.compared],
    }
    return json.dumps(facts, indent=1, ensure_ascii=False) + "\n"


def _scenario(one: Compared) -> dict[str, Any]:
    scenario, bars = one.scenario, one.scenario.bars
    return {
        "name": scenario.name,
        "title": scenario.title,
        "unit": scenario.unit,
        "cap": scenario.cap,
        "chart": {"figure": bars.figure, "section": bars.section, "what": bars.what, "until": bars.until}
        if bars
        else None,
        "sides": {side.name: _side(side, one.sides.figures) for side in one.sides.all},
    }


def _side(side: Series, figures: tuple[str, ...]) -> dict[str, Any]:
    return {
        "medians": {name: _rounded(side.median(name)) for name in figures},
        "cpu": _rounded(side.cpu),
        "tries": [
            {
                "figures": {name: _rounded(value) for name, value in one.figures.items()},
                "cpu": _rounded(one.cpu),
                "gave_up": one.gave_up,
            }
            for one in side.tries
        ],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _etcd_version() -> str:
    if not shutil.which("etcd"):
        return "not there: what needs it is left out"
    answer = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=False).stdout
    return answer.partition(":")[2].split()[0] if ":" in answer else "unknown"
