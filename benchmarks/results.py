"""Everything that was measured, in one run of the benchmarks or several, for people and for programs."""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import peer
from benchmarks.measure import Series, Sides, Try
from benchmarks.scenarios import Scenario


@dataclass(frozen=True, slots=True)
class Run:
    """One run: when, by which command and where."""

    date: str
    command: str
    took: float
    """seconds"""
    loads: tuple[str, str]
    """of the machine at the beginning and at the end: how far to trust the wall clock"""
    machine: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Compared:
    """A scenario, what came of it, and in which run."""

    scenario: Scenario
    sides: Sides
    run: Run


def runs(compared: Sequence[Compared]) -> list[Run]:
    """List the runs that results are of, in their order."""
    return list(dict.fromkeys(one.run for one in compared))


def begin(command: str) -> Callable[[], Run]:
    """
    Take note of the beginning of a run.

    :param command: what is run
    :return: what gives the run as it stands
    """
    began, loaded, where = time.monotonic(), load(), tuple(machine())
    return lambda: Run(today(), command, time.monotonic() - began, (loaded, load()), where)


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
    yield f"Lattice {version('lattice-addons-pytorch')}, torchrunx {peer.version() or 'not there: left out'}"


def as_json(compared: Sequence[Compared]) -> str:
    """Write all tries and their medians down, and how the chart names them."""
    known = runs(compared)
    facts = {
        "runs": [
            {
                "date": run.date,
                "command": run.command,
                "seconds": round(run.took),
                "loads": list(run.loads),
                "machine": list(run.machine),
            }
            for run in known
        ],
        "scenarios": [_scenario(one, known.index(one.run)) for one in compared],
    }
    return json.dumps(facts, indent=1, ensure_ascii=False) + "\n"


def read(figures: str, listed: Sequence[Scenario]) -> list[Compared]:
    """
    Read what was written down.

    :param figures: JSON
    :param listed: the scenarios that there are now; results of others are left out
    """
    facts = json.loads(figures)
    known = [
        Run(one["date"], one["command"], one["seconds"], (one["loads"][0], one["loads"][1]), tuple(one["machine"]))
        for one in facts["runs"]
    ]
    by_name = {scenario.name: scenario for scenario in listed}
    return [
        Compared(by_name[one["name"]], Sides(*(_series(*side) for side in one["sides"].items())), known[one["run"]])
        for one in facts["scenarios"]
        if one["name"] in by_name
    ]


def merged(fresh: Sequence[Compared], kept: Sequence[Compared], listed: Sequence[Scenario]) -> tuple[Compared, ...]:
    """
    Put results of several runs together.

    :param fresh: results that take the place of others
    :param kept: the others
    :param listed: the scenarios in their order
    """
    found = {one.scenario.name: one for one in (*kept, *fresh)}
    return tuple(found[scenario.name] for scenario in listed if scenario.name in found)


def _series(name: str, side: dict[str, Any]) -> Series:
    return Series(name, tuple(Try(one["figures"], one["cpu"], one["gave_up"]) for one in side["tries"]))


def _scenario(one: Compared, run: int) -> dict[str, Any]:
    scenario, bars = one.scenario, one.scenario.bars
    return {
        "name": scenario.name,
        "run": run,
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
