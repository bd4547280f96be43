"""The page on scale: what was measured, beside what it cannot be less than."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from statistics import median

from benchmarks.results import machine
from benchmarks.scale_meters import KEEPALIVE, Reading
from benchmarks.scale_phases import (
    FIRST,
    FLOORS,
    GOODBYE,
    IDLE,
    LAPSE,
    LEADER_LOST,
    PHASES,
    TENTH_LOST,
    TOGETHER,
    Phase,
    Result,
)

FIRST_ROUND_RATIO = 2.0
"""times bare registration that a first round may take"""
REFORM = 1.0
"""seconds to the next round once the lease of one node has lapsed"""
COMPARED = dict.fromkeys((TOGETHER, FIRST), ("register", "join")) | dict.fromkeys(
    (LAPSE, GOODBYE, TENTH_LOST, LEADER_LOST), ("write", "again")
)
"""which floors a phase is compared with: what all nodes must write, and all calls and messages that it consists of"""
NOTES = """\
- *floor*: the same number of the same clients, in as many processes, without Lattice around them. For a first round
  each connects, makes a lease and writes one key under it (*register*); for a later round each writes one key on the
  connection that it has (*write*): less cannot tell that all nodes have left the last round.
- *bare*: the same clients do all that a round consists of, and nothing is decided. For a first round each connects,
  makes a lease, writes a key and reads in one transaction, watches, and hears one message (*join*); for a later one
  each hears a message, writes a key and hears another (*again*). The messages are sent when all have written.
- *s*: until the last agent had started its workers of the new round. Where leases lapse, from the moment at which the
  last one did; *lapse* is what passed before, from the loss on (here leases last 10 s; etcd looks every half second).
- *calls*: that clients began at etcd, keepalives not counted. *log*: entries in etcd's log. *events*: messages on
  watches. CPU in seconds, keepalives and all else that went on meanwhile included.
- The agents are simulated: protocol, session and etcd client are the real ones, each agent has its own connection,
  watch and threads. There are no workers, and the agents of one process share a loop. All of them run on the cores on
  which etcd runs: a real cluster brings its own.
- *leader*: its process, alone. Unknown ("–") where another agent led.
- Every round had lasted 10 s before something was done to it.\
"""  # noqa: RUF001


def document(results: list[Result], loads: tuple[str, str], took: float) -> str:
    """Write the whole page."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    tries = max(len(_phases(results, name, result.nodes)) for name in PHASES for result in results)
    facts = [
        f"{today}, `python -m benchmarks.scale`, {took / 60:.0f} minutes, tries: {tries} (medians), load of "
        f"the machine {loads[0]} at the beginning, {loads[1]} at the end (the benchmark's own included)",
        *machine(),
    ]
    troubles = [trouble for result in results for trouble in result.troubles]
    facts += [f"connections that broke: {len(troubles)}" + (f", first: {troubles[0]}" if troubles else "")]
    lines = ["# A thousand nodes", "", *(f"- {fact}" for fact in facts), "", *_floors(results)]
    for name in PHASES:
        lines += _table(name, results)
    return "\n".join([*lines, NOTES, ""])


def missed(results: list[Result]) -> list[str]:
    """List what is expected and did not hold."""
    lines = []
    for nodes in sorted({result.nodes for result in results}):
        first = _floor(results, nodes, "register")
        for name in (TOGETHER, FIRST):
            took = _middle(_phases(results, name, nodes), lambda phase: phase.seconds)
            if took and first and took > FIRST_ROUND_RATIO * first:
                lines.append(f"{name}, {nodes} nodes: {took:.2f} s is more than {FIRST_ROUND_RATIO:g} x {first:.2f} s")
        took = _middle(_phases(results, LAPSE, nodes), lambda phase: phase.seconds)
        if took and took > REFORM:
            lines.append(f"{LAPSE}, {nodes} nodes: {took:.2f} s is more than {REFORM:g} s")
    return lines


def _floors(results: list[Result]) -> list[str]:
    lines = ["| floor | nodes | s | calls | etcd CPU | clients CPU |", "| --- | ---: | ---: | ---: | ---: | ---: |"]
    for what in FLOORS:
        for nodes in sorted({result.nodes for result in results}):
            costs = [result.floors[what][1] for result in results if result.nodes == nodes and what in result.floors]
            if costs:
                cells = [
                    what,
                    str(nodes),
                    f"{_floor(results, nodes, what):.2f}",
                    f"{median(cost.calls for cost in costs):.0f}",
                    f"{median(cost.etcd_cpu for cost in costs):.2f}",
                    f"{median(cost.agents_cpu + cost.leader_cpu for cost in costs):.2f}",
                ]
                lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _table(name: str, results: list[Result]) -> list[str]:
    sizes = [nodes for nodes in sorted({result.nodes for result in results}) if _phases(results, name, nodes)]
    if not sizes:
        return []
    head = [
        "nodes",
        "s",
        "lapse s",
        "floor s",
        "ratio",
        "bare s",
        "ratio",
        "calls",
        "calls/node",
        "log",
        "events",
        "in kB",
        "out kB",
    ]
    head += ["out kB/node", "etcd CPU", "leader CPU", "others CPU"]
    if name == IDLE:
        head[1:7] = ["keepalives"]
    lines = [f"## {name[0].upper()}{name[1:]}", "", "| " + " | ".join(head) + " |", "|" + " ---: |" * len(head)]
    for nodes in sizes:
        phases = _phases(results, name, nodes)

        def middle(value: Callable[[Reading], float], phases: list[Phase] = phases) -> float:
            return median(value(phase.cost) for phase in phases)

        seconds = median(phase.seconds for phase in phases)
        times = [f"{seconds:.2f}", f"{median(phase.lapse for phase in phases):.2f}"]
        for what in COMPARED.get(name, ()):
            floor = _floor(results, nodes, what)
            times += [f"{floor:.2f}", f"{seconds / floor:.1f}" if floor else ""]
        if name == IDLE:
            times = [f"{middle(lambda cost: cost.requests.get(KEEPALIVE, 0)):.0f}"]
        known = [phase.cost.leader_cpu for phase in phases if phase.leader_known]
        calls, sent = middle(lambda cost: cost.calls), middle(lambda cost: cost.sent)
        cells = [
            str(nodes),
            *times,
            f"{calls:.0f}",
            f"{calls / nodes:.1f}",
            f"{middle(lambda cost: cost.proposals):.0f}",
        ]
        cells += [f"{middle(lambda cost: cost.events):.0f}", f"{middle(lambda cost: cost.received) / 1e3:.0f}"]
        cells += [f"{sent / 1e3:.0f}", f"{sent / 1e3 / nodes:.1f}", f"{middle(lambda cost: cost.etcd_cpu):.2f}"]
        cells += [f"{median(known):.2f}" if known else "–", f"{middle(lambda cost: cost.agents_cpu):.2f}"]  # noqa: RUF001
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def _phases(results: Iterable[Result], name: str, nodes: int) -> list[Phase]:
    return [phase for one in results for phase in one.phases if phase.name == name and one.nodes == nodes]


def _middle(phases: list[Phase], value: Callable[[Phase], float]) -> float:
    return median(value(phase) for phase in phases) if phases else 0.0


def _floor(results: Iterable[Result], nodes: int, what: str) -> float:
    """Give the median of a floor."""
    found = [result.floors[what][0] for result in results if result.nodes == nodes and what in result.floors]
    return median(found) if found else 0.0
