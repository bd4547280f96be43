"""What a seed means: how many agents, which limits, how slow a store, and what goes wrong when."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lattice.core.spec import NodeRange, Policy

if TYPE_CHECKING:
    from random import Random

Fates = tuple[tuple[str, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong, or merely happens."""

    at: float
    kind: str
    which: float = 0.0
    """picks the agent, as a fraction"""
    lasts: float = 0.0
    detail: str = ""
    beside: str = ""
    """when the store is back: a newcomer is there too, or one agent comes back later than the others"""


@dataclass(frozen=True)
class Plan:
    """Everything that is drawn beforehand."""

    policy: Policy
    starts: tuple[float, ...]
    """when the first agents start"""
    faults: tuple[Fault, ...]
    horizon: float
    """after this nothing goes wrong any more"""
    fates: Fates
    """what becomes of rounds, with weights: done, worker (one fails), port, hang, alone (each finishes by itself)"""
    lasting: tuple[float, float]
    forever: bool
    """whether rounds that begin in peace run for ever, so that their membership can be looked at"""
    latency: tuple[float, float]
    spike: float
    calm: bool = False
    """whether nothing happens that may restart a worker"""


def draw(random: Random) -> Plan:
    """Draw a plan."""
    minimum = random.choice((1, 2, 2, 3))
    maximum = minimum + random.choice((0, 1, 1, 2))
    policy = Policy(
        nodes=NodeRange(minimum, maximum),
        max_restarts=random.choice((0, 1, 2, 3)),
        join_timeout=random.choice((20.0, 40.0)),
        last_call=random.choice((1.0, 3.0, 5.0)),
        lease_ttl=5.0,
        store_grace=random.choice((0.0, 8.0, 20.0, 60.0)),
        connect_timeout=random.choice((20.0, 60.0)),
        grow_interval=random.choice((5.0, 30.0)),
        outcome_ttl=random.choice((6.0, 15.0)),
        run_ttl=random.choice((20.0, 60.0)),
    )
    if random.random() < 0.12:
        return _calm(random, policy)
    count = random.choice((minimum, minimum, maximum, maximum, maximum, maximum + 1))
    spread = random.choice((0.0, 1.0, 6.0))
    horizon = random.uniform(8.0, 45.0)
    names = ("done", "worker", "port", "hang", "alone")
    forever = random.random() < 0.4
    weights = (0, 2, 0.5, 6, 0) if forever else random.choice(((1, 2, 0.5, 5, 1), (6, 2, 0.5, 1, 2), (1, 8, 1, 1, 1)))
    return Plan(
        policy=policy,
        starts=tuple(random.random() * spread for _ in range(count)),
        faults=tuple(_fault(random, horizon) for _ in range(random.choice((0, 1, 2, 2, 3, 4, 6, 8)))),
        horizon=horizon,
        fates=(names, weights),
        lasting=random.choice(((0.2, 3.0), (2.0, 20.0))),
        forever=forever,
        latency=random.choice(((0.001, 0.01), (0.001, 0.01), (0.01, 0.2), (0.05, 0.6))),
        spike=random.choice((0.0, 0.0, 0.0, 0.01)),
    )


def _fault(random: Random, horizon: float) -> Fault:
    kinds = (
        ("crash", 2),
        ("restart", 4),
        ("crash leader", 2),
        ("trip", 3),
        ("pause", 3),
        ("pause leader", 1.5),
        ("goodbye", 2),
        ("goodbye leader", 1),
        ("cut", 3),
        ("cut leader", 1.5),
        ("away", 3),
        ("emptied", 2),
        ("join", 4),
        ("odd", 1),
        ("compact", 1),
    )
    kind = random.choices([name for name, _ in kinds], [weight for _, weight in kinds])[0]
    lasts = random.choice((random.uniform(0.2, 3.0), random.uniform(3.0, 8.0), random.uniform(8.0, 30.0)))
    at = random.uniform(0.0, horizon)
    detail = beside = ""
    if kind == "trip":
        lasts = float(random.choice((1, 1, 2, 3, 4)))
    elif kind == "away":
        detail = random.choice(("refuses", "silent", "refuses lapsed", "silent lapsed"))
    elif kind == "emptied":
        lasts, detail = random.uniform(0.1, 6.0), random.choice(("wiped", "refilled"))
    if kind in ("away", "emptied"):
        beside = random.choice(("", "", "", "newcomer", "straggler"))
    elif kind == "join" and random.random() < 0.3:
        at += random.uniform(0.0, 60.0)
    return Fault(at, kind, random.random(), lasts, detail, beside)


def _calm(random: Random, policy: Policy) -> Plan:
    """All nodes, and nothing but breaks of the whole store shorter than the grace; it may come back empty."""
    policy = replace(policy, store_grace=60.0, connect_timeout=60.0)
    at, faults = 10.0, []
    for _ in range(random.choice((1, 1, 2))):
        kind = random.choice(("away", "away", "emptied"))
        lasts = random.choice((random.uniform(0.1, 4.0), random.uniform(4.0, 55.0)))
        detail = random.choice(("refuses", "silent", "refuses lapsed", "silent lapsed"))
        faults.append(Fault(at, kind, 0.0, lasts, detail if kind == "away" else random.choice(("wiped", "refilled"))))
        at += lasts + random.uniform(12.0, 30.0)
    return Plan(
        policy=policy,
        starts=tuple(random.random() for _ in range(policy.nodes.maximum)),
        faults=tuple(faults),
        horizon=at + random.choice((0.0, 90.0)),
        fates=(("hang",), (1.0,)),
        lasting=(1.0, 1.0),
        forever=False,
        latency=random.choice(((0.001, 0.01), (0.01, 0.1))),
        spike=0.0,
        calm=True,
    )
