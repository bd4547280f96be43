"""``python -m benchmarks``: Lattice and torchrun side by side, printed and written to ``benchmarks/RESULTS.md``."""

from __future__ import annotations

import argparse
import compileall
import signal
import sys
import time

from benchmarks import processes, report
from benchmarks.etcd import running_etcd
from benchmarks.jobs import ROOT
from benchmarks.measure import Contender, Series, Try, in_turns
from benchmarks.scenarios import Effort, Scenario, scenarios

RESULTS = ROOT / "benchmarks" / "RESULTS.md"
QUICK = Effort(quick=3, restart=2, node=1, waiting=1)


def main() -> int:
    """
    Run the benchmarks.

    :return: 0, or 1 if something that is expected of Lattice did not hold
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="run this scenario alone (may be repeated)")
    parser.add_argument("--tries", type=int, metavar="N", help="try each side this often in every scenario")
    parser.add_argument("--quick", action="store_true", help="few tries: to see that it works, not to quote")
    parser.add_argument("--list", action="store_true", help="print the names of the scenarios and end")
    options = parser.parse_args()
    effort = QUICK if options.quick else Effort()
    if options.tries:
        effort = Effort(options.tries, options.tries, options.tries, options.tries)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    processes.become_subreaper()
    # An installed package has its bytecode, and so has torch; an editable one may not have it.
    compileall.compile_dir(ROOT / "src" / "lattice", quiet=2)
    began, load = time.monotonic(), report.load()
    try:
        with running_etcd() as endpoint:
            listed = scenarios(endpoint, effort)
            if options.list:
                print("\n".join(scenario.name for scenario in listed))
                return 0
            unknown = set(options.only or ()) - {scenario.name for scenario in listed}
            if unknown:
                parser.error(
                    f"no scenario {', '.join(sorted(unknown))}; there are "
                    f"{', '.join(scenario.name for scenario in listed)}"
                )
            chosen = [scenario for scenario in listed if not options.only or scenario.name in options.only]
            results = {scenario.name: (scenario, *compare(scenario)) for scenario in chosen}
    finally:
        processes.kill_descendants()
    text = report.document(results, (load, report.load()), time.monotonic() - began)
    print(f"\n{text}", flush=True)
    if not (options.only or options.quick or options.tries):
        RESULTS.write_text(text)
        print(f"written to {RESULTS.relative_to(ROOT)}")
    missed = report.missed(results)
    if missed:
        print(f"expected and not reached: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


def compare(scenario: Scenario) -> tuple[Series, Series]:
    """Try both sides in turns."""
    print(f"{scenario.name}: {scenario.title}", flush=True)
    done: dict[str, list[Try]] = {contender.name: [] for contender in scenario.contenders}
    for contender, number in in_turns(scenario.contenders):
        result = contender.attempt()
        done[contender.name].append(result)
        print(f"  {_shown(contender, number, scenario, result)}", flush=True)
    ours, theirs = (Series(tuple(done[contender.name])) for contender in scenario.contenders)
    return ours, theirs


def _shown(contender: Contender, number: int, scenario: Scenario, result: Try) -> str:
    figures = ", ".join(f"{name} {value:.2f} {scenario.unit}" for name, value in result.figures.items())
    cpu = "" if result.cpu is None else f" (CPU {result.cpu:.2f} s)"
    missing = "" if len(result.figures) == 2 else f" no new group in {scenario.cap:.0f} s"
    missing = ", gave up" if result.gave_up else missing
    return f"{contender.name} {number + 1}/{contender.tries}: {figures}{missing}{cpu}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
