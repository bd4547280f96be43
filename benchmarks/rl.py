"""``python -m benchmarks.rl``: steps, bytes and seconds of learner and workers; a complete run is written down."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from benchmarks import processes
from benchmarks.jobs import ROOT
from benchmarks.results import load, machine

RESULTS = ROOT / "benchmarks" / "RL.md"
PUBLISHED = 1.42e6 / 3600
"""steps per second that Learn-to-Race published, with 64 workers"""
OVERHEAD = 10.0
"""per cent that a step with learner and worker may cost more than one by itself"""
Figures = dict[str, float]
NOTES = """\
- All of it runs on the same cores: a learner, its workers, and for each of these the process of its simulator.
- The clock starts when a tenth of the steps has been taken in, so that everybody is up, and stops at the goal. Steps
  are counted when the learner has taken them in. *CPU* is that of all processes in that time, the kernel's included.
- *Trivial*: an environment that does nothing, episodes of 200 steps of four numbers, sent one by one.
- *Bare*: environment and policy in one process, and nothing else. *In one process*: the same loop as a worker's, whose
  trajectories go into the learner's buffer, and no transport. All three are tried in turns. Episodes of Pendulum have
  200 steps. The wall clock is that of the slowest process, the simulator's; CPU is that of all three.
- *Images*: observations of 84 x 84 x 4 bytes, 100 steps to a trajectory (2.9 MB), encrypted as all else is.
- *Utilisation*: part of the time that the learner spent in updates, which take 2 ms here and do nothing, while four
  workers send as much as they can. Published for Learn-to-Race: 42 % with 64 workers.\
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    value: str
    cpu: str
    expected: str = ""
    holds: bool = True


def measured(role: str, **settings: object) -> Figures:
    """Run a learner with its workers, or the bare loop, in a session of its own."""
    line = [sys.executable, "-m", "benchmarks.workers.rl", role, json.dumps(settings)]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OPENBLAS_NUM_THREADS": "1"}
    said = subprocess.run(
        line, env=environ, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        start_new_session=True, timeout=600, check=True,
    ).stdout  # fmt: skip
    found: Figures = json.loads(said.splitlines()[0])
    print(f"  {role} {settings}: {found}", flush=True)
    return found


def tried(tries: int, *sides: Callable[[], Figures]) -> list[list[Figures]]:
    """Try all sides in turns."""
    found: list[list[Figures]] = [[] for _ in sides]
    for _ in range(tries):
        for side, mine in zip(sides, found, strict=True):
            mine.append(side())
    return found


def shown(values: list[float], form: str) -> str:
    """Write a median and its range."""
    return f"{median(values):{form}} [{min(values):{form}}–{max(values):{form}}]"  # noqa: RUF001


def per_step(tries: list[Figures], name: str) -> list[float]:
    """Give microseconds for each step."""
    return [one[name] / one["steps"] * 1e6 for one in tries]


def speed(tries: int, workers: int) -> Row:
    """Measure steps per second with an environment that costs nothing."""
    (found,) = tried(tries, lambda: measured("learner", environment="trivial", workers=workers, steps=400_000))
    rates = [one["steps"] / one["seconds"] for one in found]
    return Row(
        f"trivial environment, {workers} worker{'s' if workers > 1 else ''}: steps per second",
        shown(rates, ",.0f"),
        f"{median(per_step(found, 'cpu')):.1f} µs/step",
        f"> {PUBLISHED:.0f}",
        median(rates) > PUBLISHED,
    )


def overhead(tries: int) -> list[Row]:
    """Measure what a step of Pendulum costs with learner and worker, and without."""
    bare, alone, ours = tried(
        tries,
        lambda: measured("bare", environment="pendulum", steps=100_000),
        lambda: measured("alone", environment="pendulum", steps=100_000),
        lambda: measured("learner", environment="pendulum", workers=1, steps=110_000),
    )
    names = {
        "bare, nothing recorded": bare,
        "recorded and put into the buffer, in one process": alone,
        "one worker and the learner": ours,
    }
    rows = [
        Row(f"Pendulum, {what}: µs for a step", shown(per_step(side, "seconds"), ".1f"), _cpu(side))
        for what, side in names.items()
    ]
    for what, side, most in (("in one process", alone, OVERHEAD), ("bare", bare, None)):
        more, cpu = (median(per_step(ours, name)) / median(per_step(side, name)) - 1 for name in ("seconds", "cpu"))
        asked = "" if most is None else f"≤ {most:g} %"
        rows.append(
            Row(
                f"Pendulum, one worker and the learner, more than {what}",
                f"{more * 100:+.1f} %",
                f"{cpu * 100:+.1f} %",
                asked,
                most is None or more * 100 <= most,
            )
        )
    return rows


def bytes_rate(tries: int, workers: int) -> Row:
    """Measure how many megabytes of trajectories are taken in each second."""
    (found,) = tried(tries, lambda: measured("learner", environment="images", workers=workers, steps=40_000))
    return Row(
        f"images, {workers} worker{'s' if workers > 1 else ''}: MB/s",
        shown([one["megabytes"] / one["seconds"] for one in found], ",.0f"),
        f"{median([one['cpu'] / one['megabytes'] * 1000 for one in found]):.1f} ms/MB",
    )


def utilisation(tries: int) -> Row:
    """Measure how much of its time the learner has for updates while workers send as much as they can."""
    (found,) = tried(
        tries, lambda: measured("learner", environment="trivial", workers=4, steps=400_000, update=0.002, ratio=None)
    )
    return Row(
        "utilisation of the learner, 4 workers",
        shown([one["utilisation"] * 100 for one in found], ".0f") + " %",
        f"{median([one['steps'] / one['seconds'] for one in found]):,.0f} steps/s beside it",
    )


def _cpu(tries: list[Figures]) -> str:
    return f"{median(per_step(tries, 'cpu')):.1f} µs/step"


def document(rows: list[Row], tries: int, loads: tuple[str, str], took: float) -> str:
    """Write the page."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    facts = [
        f"{today}, `python -m benchmarks.rl`, {max(took / 60, 1):.0f} minutes, {tries} tries each (median and range), "
        f"load of the machine {loads[0]} at the beginning, {loads[1]} at the end (the benchmark's own included)",
        *machine(),
    ]
    lines = ["# Learner and workers", "", *(f"- {fact}" for fact in facts), ""]
    lines += ["| what | measured | CPU | expected |", "| --- | ---: | ---: | --- |"]
    for row in rows:
        verdict = f"{row.expected}: {'yes' if row.holds else '**no**'}" if row.expected else ""
        lines.append(f"| {row.what} | {row.value} | {row.cpu} | {verdict} |")
    return "\n".join([*lines, "", NOTES, ""])


def main() -> int:
    """
    Run all of it.

    :return: 0, or 1 if something that is expected did not hold
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rl", description=__doc__)
    parser.add_argument("--tries", type=int, default=5, metavar="N", help="repeat each so often (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one try each, and nothing is written down")
    options = parser.parse_args()
    tries = 1 if options.quick else options.tries
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    processes.become_subreaper()
    began, before = time.monotonic(), load()
    try:
        rows = [speed(tries, workers) for workers in (1, 2, 4)]
        rows += overhead(tries)
        rows += [bytes_rate(tries, workers) for workers in (1, 2)]
        rows.append(utilisation(tries))
    finally:
        processes.kill_descendants()
    text = document(rows, tries, (before, load()), time.monotonic() - began)
    print(f"\n{text}", flush=True)
    if not options.quick:
        RESULTS.write_text(text)
    missed = [row.what for row in rows if not row.holds]
    if missed:
        print(f"expected and not reached: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
