"""What is compared, how often, and what is expected of Lattice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks import tries
from benchmarks.launchers import Launcher, Shape, lattice, torchrun
from benchmarks.measure import Contender, Try

LEASE_TTL = 5.0
COLD = ("--preload", "none")
HANG = 45.0
"""seconds after which a restart that should take one or two, and the import of torch, counts as hung"""
LONG_HANG = 90.0
"""the same where torchrun waits 30 s for more nodes before it goes on"""
NO_REACTION = 60.0


@dataclass(frozen=True, slots=True)
class Limit:
    """What Lattice has to reach."""

    figure: str
    faster: float = 0.0
    """how many times faster, or smaller, than torchrun"""
    below: float = 0.0
    """or how much at most"""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One comparison."""

    name: str
    title: str
    contenders: tuple[Contender, Contender]
    limits: tuple[Limit, ...] = ()
    unit: str = "s"
    cap: float = 0.0
    """seconds after which a try in which nothing has happened ends"""
    on_etcd: bool = False


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

    :param endpoint: where etcd is; without one, what needs it is left out
    :param effort: how often each is tried
    """
    ours, pair = lattice(endpoint), Shape(2, "1:2")
    listed = [
        Scenario(
            "start",
            "start, 1 node with 1 worker that imports nothing: from the command",
            _sides(tries.start, lattice(), torchrun(), effort.quick, effort.quick),
            (Limit(tries.LINE, faster=10),),
        ),
        Scenario(
            "memory",
            "memory of an agent and its helpers while a worker runs, in-process store, `--preload none`",
            _sides(tries.memory, lattice("", *COLD), torchrun(), effort.restart, effort.node),
            (Limit(tries.RSS, below=60),),
            unit="MB",
        ),
        Scenario(
            "memory-etcd",
            "the same with the store on etcd (torchrun: c10d)",
            _sides(tries.memory, lattice(endpoint, *COLD), torchrun(), effort.restart, effort.node),
            (Limit(tries.RSS, below=60),),
            unit="MB",
            on_etcd=True,
        ),
        Scenario(
            "worker",
            "a worker dies (SIGKILL), 1 node with 2 workers: to the",
            _sides(_worker_death(Shape(workers=2), HANG), lattice(), torchrun(), effort.restart, effort.restart),
            cap=HANG,
        ),
        Scenario(
            "worker-2",
            "a worker dies, `--nnodes 2`: to the",
            _sides(_worker_death(Shape(2, "2"), HANG), ours, torchrun(), effort.restart, effort.restart),
            cap=HANG,
            on_etcd=True,
        ),
        Scenario(
            "worker-1:3",
            "a worker dies, `--nnodes 1:3` with 2 nodes: to the",
            _sides(_worker_death(Shape(2, "1:3"), LONG_HANG), ours, torchrun(), effort.restart, effort.waiting),
            (Limit(tries.AGAIN, faster=10),),
            cap=LONG_HANG,
            on_etcd=True,
        ),
        Scenario(
            "loss",
            "a node is lost (SIGKILL) of 2, `--nnodes 1:2`, while workers exchange gradients: to the",
            _sides(_node_loss(pair, LONG_HANG, "training"), ours, torchrun(), effort.node, effort.waiting),
            (Limit(tries.AGAIN, below=LEASE_TTL + 2),),
            cap=LONG_HANG,
            on_etcd=True,
        ),
        Scenario(
            "loss-unfelt",
            "a node is lost of 2, `--nnodes 1:2`, while workers compute, so that no collective fails: to the",
            _sides(_node_loss(pair, NO_REACTION, "computing"), ours, torchrun(), effort.node, 1),
            (Limit(tries.AGAIN, below=LEASE_TTL + 2),),
            cap=NO_REACTION,
            on_etcd=True,
        ),
        Scenario(
            "goodbye",
            "a node says goodbye (SIGTERM) of 2, `--nnodes 1:2`: to the",
            _sides(_goodbye(pair, LONG_HANG), ours, torchrun(), effort.node, effort.waiting),
            (Limit(tries.AGAIN, below=1),),
            cap=LONG_HANG,
            on_etcd=True,
        ),
    ]
    return [scenario for scenario in listed if endpoint or not scenario.on_etcd]


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
