"""Run one schedule by its number and print what happened: ``python -m tests.simulation.replay SEED``."""

from __future__ import annotations

import sys

from tests.simulation.cluster import Cluster
from tests.simulation.trace import render


def replay(seed: int, last: int | None = None) -> str:
    """
    Run one schedule.

    :param last: how many lines of the trace to give at most
    :return: what went wrong and how it came to that, empty if all was well
    """
    cluster = Cluster(seed)
    try:
        cluster.run()
    except AssertionError as error:
        return f"seed {seed}: {error}\n{cluster.plan}\n{render(cluster.world.trace, last)}\nseed {seed}: {error}"
    return ""


def main() -> None:
    for seed in map(int, sys.argv[1:]):
        cluster = Cluster(seed)
        error: AssertionError | None = None
        try:
            cluster.run()
        except AssertionError as caught:
            error = caught
        print(cluster.plan)
        print(render(cluster.world.trace))
        print(f"seed {seed}: {error or 'all was well'}")


if __name__ == "__main__":
    main()
