"""What is compared of launched functions: ``lattice.launch`` and torchrunx."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks import launches
from benchmarks.expectations import AtMost, Times
from benchmarks.launches import LATTICE, POOL, TORCHRUNX, Side
from benchmarks.measure import Contender, Try
from benchmarks.scenarios import Bars, Effort, Scenario
from benchmarks.workers.launching import LINES

LAUNCHING = "Launching a function on 2 workers, beside torchrunx"


def launch_scenarios(effort: Effort) -> list[Scenario]:
    """
    List the comparisons.

    :param effort: how often each is tried; torchrunx less where it takes more than 20 s
    """
    often, slow = effort.restart, effort.node
    return [
        Scenario(
            "launch",
            "a function that does nothing, 2 workers with a process group: to the",
            _sides(launches.twice, LATTICE, often, often),
            (Times(launches.COMMAND, 3),),
            needs="torchrunx",
            bars=Bars(launches.COMMAND, LAUNCHING, "A function that does nothing", "from the command to its result"),
        ),
        Scenario(
            "launch-pool",
            "the same in a pool (`with Launcher(…) as pool:`): to the",
            _sides(launches.second, POOL, often, slow),
            (AtMost(launches.SECOND, 0.3),),
            needs="torchrunx",
            bars=Bars(launches.SECOND, LAUNCHING, "A second launch", "in a pool; torchrunx has none"),
        ),
        Scenario(
            "launch-array",
            "an array of 500 MB to 2 workers, and one back from each: to the",
            _sides(launches.array, LATTICE, often, slow),
            (Times(launches.COMMAND, 10),),
            needs="torchrunx",
            bars=Bars(launches.COMMAND, LAUNCHING, "An array of 500 MB", "to both, and one back from each"),
        ),
        Scenario(
            "launch-memory",
            "the most memory that this takes",
            _sides(launches.array_memory, LATTICE, slow, slow),
            (Times(launches.LAUNCHER, 4), Times(launches.AGENT, 4)),
            unit="MB",
            needs="torchrunx",
            bars=Bars(launches.LAUNCHER, LAUNCHING, "Memory of the launcher", "for that array"),
        ),
        Scenario(
            "launch-lines",
            f"{LINES:,} lines of log from each of 2 workers: to the",
            _sides(launches.lines, LATTICE, often, slow),
            (Times(launches.COMMAND, 10), AtMost(launches.LOST, 0)),
            units={launches.LOST: "lines"},
            needs="torchrunx",
            bars=Bars(
                launches.COMMAND, LAUNCHING, f"{launches.ALL_LINES:,} lines of log", "from the command to the end"
            ),
        ),
        Scenario(
            "launch-death",
            "a worker dies (SIGKILL): to the",
            _sides(launches.death, LATTICE, often, often),
            (AtMost(launches.EXCEPTION, 0.2),),
            needs="torchrunx",
            bars=Bars(launches.EXCEPTION, LAUNCHING, "A worker dies", "to the exception in the script"),
        ),
    ]


def _sides(attempt: Callable[[Side], Try], ours: Side, our_tries: int, their_tries: int) -> tuple[Contender, Contender]:
    return (
        Contender("Lattice", partial(attempt, ours), our_tries),
        Contender("torchrunx", partial(attempt, TORCHRUNX), their_tries),
    )
