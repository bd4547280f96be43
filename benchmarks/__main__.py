"""``python -m benchmarks``: Lattice beside torchrun and torchrunx; a complete run is written down and drawn."""

from __future__ import annotations

import argparse
import compileall
import shlex
import signal
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks import chart, peer, processes, report, results
from benchmarks.etcd import running_etcd
from benchmarks.jobs import ROOT
from benchmarks.launch_scenarios import launch_scenarios
from benchmarks.measure import Contender, Series, Sides, Try, in_turns
from benchmarks.results import Compared
from benchmarks.scenarios import Effort, Scenario, scenarios

QUICK = Effort(quick=3, restart=2, node=1, waiting=1)


def main() -> int:
    """
    Run the benchmarks.

    :return: 0, or 1 if something that is expected of Lattice did not hold
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="run this alone; may be repeated, 'launch*' works"
    )
    parser.add_argument("--tries", type=int, metavar="N", help="try each side this often in every scenario")
    parser.add_argument("--quick", action="store_true", help="few tries: to see that it works, not to quote")
    parser.add_argument("--list", action="store_true", help="print the names of the scenarios and end")
    parser.add_argument(
        "--merge", action="store_true", help="write this down in place of the same rows of earlier runs"
    )
    parser.add_argument("--write", metavar="FOLDER", help="write page, figures and chart there, whatever was run")
    options = parser.parse_args()
    effort = QUICK if options.quick else Effort()
    if options.tries:
        effort = Effort(options.tries, options.tries, options.tries, options.tries)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    processes.become_subreaper()
    # An installed package has its bytecode, and so has torch; an editable one may not have it.
    compileall.compile_dir(ROOT / "src" / "lattice", quiet=2)
    partly = bool(options.only or options.quick or options.tries)
    command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]]) if partly else "make bench"
    run = results.begin(command)
    found: list[tuple[Scenario, Sides]] = []
    compared: tuple[Compared, ...] = ()
    try:
        with running_etcd() as endpoint:
            listed = [*scenarios(endpoint, effort), *launch_scenarios(effort)]
            if options.list:
                print("\n".join(scenario.name for scenario in listed))
                return 0
            patterns = options.only or ["*"]
            unknown = [one for one in patterns if not any(fnmatchcase(scenario.name, one) for scenario in listed)]
            if unknown:
                parser.error(
                    f"no scenario {', '.join(unknown)}; there are {', '.join(scenario.name for scenario in listed)}"
                )
            kept = results.read(chart.FIGURES.read_text(), listed) if options.merge else []
            there = {"", *(["etcd"] if endpoint else []), *(["torchrunx"] if peer.PYTHON.exists() else [])}
            for scenario in listed:
                if not any(fnmatchcase(scenario.name, one) for one in patterns):
                    continue
                if scenario.needs not in there:
                    print(f"{scenario.name}: left out, there is no {scenario.needs} here", flush=True)
                else:
                    found.append((scenario, compare(scenario)))
                    so_far = run()
                    compared = tuple(Compared(*one, so_far) for one in found)
                    if options.merge:  # each at once: a long run may be broken off
                        write(results.merged(compared, kept, listed), ROOT / "benchmarks", ROOT / "docs")
    finally:
        processes.kill_descendants()
    print(f"\n{report.document(compared)}", flush=True)
    if options.write:
        write(compared, Path(options.write), Path(options.write))
    elif not partly and not options.merge:
        write(compared, ROOT / "benchmarks", ROOT / "docs")
    missed = report.missed(compared)
    if missed:
        print(f"expected and not reached: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


def write(compared: Sequence[Compared], folder: Path, pictures: Path) -> None:
    """Write the page, the figures and the chart."""
    figures = results.as_json(compared)
    texts = {
        folder / "RESULTS.md": report.document(compared),
        folder / "results.json": figures,
        pictures / "benchmarks.svg": chart.draw(figures),
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"written: {path}")


def compare(scenario: Scenario) -> Sides:
    """Try all sides in turns."""
    print(f"{scenario.name}: {scenario.title}", flush=True)
    done: dict[str, list[Try]] = {contender.name: [] for contender in scenario.contenders}
    for contender, number in in_turns(scenario.contenders):
        result = contender.attempt()
        done[contender.name].append(result)
        print(f"  {_shown(contender, number, scenario, result)}", flush=True)
    return Sides(*(Series(name, tuple(tries)) for name, tries in done.items()))


def _shown(contender: Contender, number: int, scenario: Scenario, result: Try) -> str:
    figures = ", ".join(f"{name} {value:.3f} {scenario.unit_of(name)}" for name, value in result.figures.items())
    cpu = "" if result.cpu is None else f" (CPU {result.cpu:.2f} s)"
    missing = f" no new group in {scenario.cap:.0f} s" if scenario.cap and len(result.figures) < 2 else ""
    missing = ", gave up" if result.gave_up else missing
    return f"{contender.name} {number + 1}/{contender.tries}: {figures}{missing}{cpu}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
