"""``python -m benchmarks.scale``: what a thousand nodes cost one etcd, and how long they take to agree."""

from __future__ import annotations

import argparse
import signal
import sys
import time

from benchmarks import processes, scale_report
from benchmarks.jobs import ROOT
from benchmarks.results import load as current_load
from benchmarks.scale_phases import PHASES, Result, measure, progress

RESULTS = ROOT / "benchmarks" / "SCALE.md"


def main() -> int:
    """
    Run the clusters, smallest first, and write the page.

    :return: 0, or 1 if something that is expected did not hold
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("--nodes", default="10,100,300,1000", metavar="N,...", help="sizes (default: %(default)s)")
    parser.add_argument("--tries", type=int, default=1, metavar="N", help="repeat all of it; the table has medians")
    parser.add_argument("--spread", type=int, default=4, metavar="N", help="processes for the agents (%(default)s)")
    parser.add_argument("--only", action="append", metavar="TEXT", help="phases whose name contains this (repeatable)")
    parser.add_argument("--output", metavar="FILE", help=f"where to write (default: {RESULTS.relative_to(ROOT)})")
    options = parser.parse_args()
    sizes = [int(size) for size in options.nodes.split(",")]
    if min(sizes) < 4:
        parser.error("a cluster needs at least 4 nodes: three are taken away")
    chosen = [name for name in PHASES if not options.only or any(text in name for text in options.only)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    processes.become_subreaper()
    began, load = time.monotonic(), current_load()
    results: list[Result] = []
    try:
        for attempt in range(options.tries):
            for nodes in sizes:
                progress(f"-- try {attempt + 1} of {options.tries}, {nodes} nodes, load {current_load()}")
                results += measure(nodes, options.spread, chosen.__contains__)
    finally:
        processes.kill_descendants()
    text = scale_report.document(results, (load, current_load()), time.monotonic() - began)
    print(text)
    if options.output or not options.only:
        (ROOT / options.output if options.output else RESULTS).write_text(text)
    missed = scale_report.missed(results)
    for line in missed:
        print(f"expected and not reached: {line}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
