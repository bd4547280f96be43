"""What is compared, how often, and what is expected of Lattice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from benchmarks import tries
from benchmarks.expectations import AtMost, Expectation, LessThanThird, NotMeasurable, Times
from benchmarks.launchers import Launcher, Shape, lattice, torchrun
from benchmarks.measure import Contender, Try

LEASE_TTL = 5.0
COLD = ("--preload", "none")
HANG = 30.0
"""seconds after which a restart that should take one or two, and the import of torch, counts as hung"""
LONG_HANG = 90.0
"""the same where torchrun waits 30 s for more nodes before it goes on"""
NO_REACTION = 60.0
STARTING, MEMORY, TRAINING = "Starting, from the command", "Memory", "Training"
RECOVERING = "Recovering, from the fault to a process group that works"


@dataclass(frozen=True, slots=True)
class Bars:
    """How a figure is named in the chart."""

    figure: str
    section: str
    what: str
    until: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One comparison."""

    name: str
    title: str
    contenders: tuple[Contender, ...]
    """Lattice, torchrun or torchrunx, and in some a third that both are seen against"""
    expected: tuple[Expectation, ...] = ()
    unit: str = "s"
    cap: float = 0.0
    """seconds after which a try in which nothing has happened ends"""
    needs: str = ""
    """etcd or torchrunx, without which it is not run: what was written down of it stays"""
    bars: Bars | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    """of figures that have another one"""

    def unit_of(self, figure: str) -> str:
        """Give the unit of a figure."""
        return self.units.get(figure, self.unit)


@dataclass(frozen=True, slots=True)
class Effort:
    """How often each side is tried. torchrun is tried less where every try of it costs a minute of waiting."""

    quick: int = 7
    """tries that take seconds"""
    restart: int = 5
    """tries with a restart"""
    node: int = 3
    """tries in which a node goes"""
    waiting: int = 2
    """tries of torchrun in which it waits"""


def scenarios(endpoint: str, effort: Effort) -> list[Scenario]:
    """
    List the comparisons.

    :param endpoint: where etcd is; without one, what needs it must not be run
    :param effort: how often each is tried
    """
    ours, pair = lattice(endpoint), Shape(2, "1:2")
    return [
        Scenario(
            "start",
            "start, 1 node with 1 worker that imports nothing: from the command to the",
            _sides(tries.start, lattice(), torchrun(), effort.quick, effort.quick),
            (Times(tries.LINE, 10),),
            bars=Bars(tries.LINE, STARTING, "A script that imports nothing", "to its first line"),
        ),
        *(
            Scenario(
                f"start-{workers}",
                f"start, 1 node with {workers} workers that import torch: from the command to the",
                _sides(partial(tries.group_start, workers=workers), lattice(), torchrun(), *[effort.restart] * 2),
                (Times(tries.GROUP, times),),
                bars=Bars(tries.GROUP, STARTING, f"{workers} PyTorch workers", "to a process group that works"),
            )
            for workers, times in ((2, 2), (8, 4))
        ),
        Scenario(
            "worker",
            "a worker dies (SIGKILL), 1 node with 2 workers: to the",
            _sides(_worker_death(Shape(workers=2), HANG), lattice(), torchrun(), effort.restart, effort.restart),
            (Times(tries.GROUP, 15),),
            cap=HANG,
            bars=Bars(tries.GROUP, RECOVERING, "A worker dies", "one node with 2 workers"),
        ),
        Scenario(
            "worker-2",
            "a worker dies, `--nnodes 2`: to the",
            _sides(_worker_death(Shape(2, "2"), HANG), ours, torchrun(), effort.restart, effort.restart),
            cap=HANG,
            needs="etcd",
            bars=Bars(tries.GROUP, RECOVERING, "A worker dies", "two nodes of exactly 2"),
        ),
        Scenario(
            "worker-1:3",
            "a worker dies, `--nnodes 1:3` with 2 nodes: to the",
            _sides(_worker_death(Shape(2, "1:3"), LONG_HANG), ours, torchrun(), effort.restart, effort.waiting),
            (Times(tries.AGAIN, 10),),
            cap=LONG_HANG,
            needs="etcd",
            bars=Bars(tries.GROUP, RECOVERING, "A worker dies", "two nodes of 1 to 3"),
        ),
        Scenario(
            "loss",
            "a node is lost (SIGKILL) of 2, `--nnodes 1:2`, while workers exchange gradients: to the",
            _sides(_node_loss(pair, LONG_HANG, "training"), ours, torchrun(), effort.node, effort.waiting),
            (AtMost(tries.AGAIN, LEASE_TTL + 2),),
            cap=LONG_HANG,
            needs="etcd",
            bars=Bars(tries.GROUP, RECOVERING, "A node is lost", "while workers exchange gradients"),
        ),
        Scenario(
            "loss-unfelt",
            "a node is lost of 2, `--nnodes 1:2`, while workers compute, so that no collective fails: to the",
            _sides(_node_loss(pair, NO_REACTION, "computing"), ours, torchrun(), effort.node, 1),
            (AtMost(tries.AGAIN, LEASE_TTL + 2),),
            cap=NO_REACTION,
            needs="etcd",
            bars=Bars(tries.GROUP, RECOVERING, "A node is lost", "while workers compute"),
        ),
        Scenario(
            "goodbye",
            "a node says goodbye (SIGTERM) of 2, `--nnodes 1:2`: to the",
            _sides(_goodbye(pair, LONG_HANG), ours, torchrun(), effort.node, effort.waiting),
            (AtMost(tries.AGAIN, 1),),
            cap=LONG_HANG,
            needs="etcd",
            bars=Bars(tries.GROUP, RECOVERING, "A node leaves", "SIGTERM to its agent"),
        ),
        Scenario(
            "memory",
            "memory of an agent and its helpers while a worker runs, in-process store, `--preload none`",
            _sides(tries.memory, lattice("", *COLD), torchrun(), effort.restart, effort.node),
            (AtMost(tries.RSS, 60),),
            unit="MB",
            bars=Bars(tries.RSS, MEMORY, "An agent", "with its helpers, without workers"),
        ),
        Scenario(
            "memory-etcd",
            "the same with the store on etcd (torchrun: c10d)",
            _sides(tries.memory, lattice(endpoint, *COLD), torchrun(), effort.restart, effort.node),
            (AtMost(tries.RSS, 60),),
            unit="MB",
            needs="etcd",
        ),
        Scenario(
            "memory-8",
            "proportional memory of 1 node with 8 workers that import torch and have formed a process group",
            (
                *_sides(partial(tries.group_memory, workers=8), lattice(), torchrun(), effort.node, effort.node),
                Contender("Lattice `--preload none`", partial(tries.group_memory, lattice("", *COLD), 8), effort.node),
            ),
            (LessThanThird(tries.ALL),),
            unit="MB",
            bars=Bars(tries.ALL, MEMORY, "A node with 8 PyTorch workers", "agent, helpers and workers"),
        ),
        Scenario(
            "steps",
            f"training, 1 node with 2 workers, {tries.STEPS} steps of a small model, gradients averaged by all_reduce",
            (
                *_sides(partial(tries.steps, workers=2), lattice(), torchrun(), effort.restart, effort.restart),
                Contender("no supervisor", partial(tries.steps, None, 2), effort.restart),
            ),
            (NotMeasurable(tries.STEP),),
            unit="ms",
            bars=Bars(tries.STEP, TRAINING, "One step of a small model", "2 workers, gradients averaged"),
        ),
    ]


def _sides(
    attempt: Callable[[Launcher], Try], ours: Launcher, theirs: Launcher, our_tries: int, their_tries: int
) -> tuple[Contender, Contender]:
    return (
        Contender("Lattice", partial(attempt, ours), our_tries),
        Contender("torchrun", partial(attempt, theirs), their_tries),
    )


def _worker_death(shape: Shape, cap: float) -> Callable[[Launcher], Try]:
    return lambda launcher: tries.worker_death(launcher, shape, cap)


def _node_loss(shape: Shape, cap: float, mode: str) -> Callable[[Launcher], Try]:
    return lambda launcher: tries.node_loss(launcher, shape, cap, mode)


def _goodbye(shape: Shape, cap: float) -> Callable[[Launcher], Try]:
    return lambda launcher: tries.goodbye(launcher, shape, cap)
