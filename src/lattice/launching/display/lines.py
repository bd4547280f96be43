"""What is shown of the hosts of a launch: states in, lines of text out. No clock, no terminal."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from lattice.launching.display.states import HostStatus, State

URGENCY: tuple[State, ...] = (
    "lost", "restarting", "stopping", "connecting", "connected", "joining", "starting", "running", "ended",
)  # fmt: skip
"""who is shown if not all can be: the first of these"""
TONES: dict[State, Literal["good", "bad"]] = {"running": "good", "ended": "good", "lost": "bad", "restarting": "bad"}
Tone = Literal["good", "busy", "bad"]
WIDEST_NAME = 40
NAMED = 4
"""hosts that a plain line names at most"""
SETTLED = 1.0
"""seconds that a state must last to be worth a plain line"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line for a terminal."""

    text: str
    tone: Tone = "busy"


def block(hosts: Sequence[HostStatus], now: float, height: int) -> list[Line]:
    """
    Give a line for each host, or for those that matter most and one for the rest.

    :param hosts: in the order of the launch
    :param now: by the clock that the states were told by
    :param height: lines that there is room for
    """
    shown = list(hosts)
    if len(hosts) > max(height, 1):
        shown = sorted(hosts, key=lambda host: URGENCY.index(host.state))[: max(height - 1, 0)]
        shown.sort(key=lambda host: host.agent)
    width = min(max((len(host.hostname) for host in shown), default=0), WIDEST_NAME)
    lines = [
        Line(f"{printable(host.hostname):{width}}  {live_text(host, now)}", TONES.get(host.state, "busy"))
        for host in shown
    ]
    chosen = {host.agent for host in shown}
    rest = [host for host in hosts if host.agent not in chosen]
    if rest:
        counted = Counter(host.state for host in rest)
        told = ", ".join(f"{counted[state]} {state}" for state in URGENCY if counted[state])
        lines.append(Line(f"{'and ' if shown else ''}{len(rest)} {'more ' if shown else ''}hosts: {told}"))
    return lines


def live_text(host: HostStatus, now: float) -> str:
    """Say how a host stands, and for how long."""
    lasted = clock(now - host.since)
    if host.state == "running":
        return f"{state_text(host)}, {lasted}"
    if host.state in ("lost", "ended"):
        return state_text(host)
    doing, colon, reason = state_text(host).partition(": ")
    return f"{doing}… {lasted}{colon}{reason}"


def state_text(host: HostStatus) -> str:
    """Say how a host stands."""
    match host.state:
        case "joining":
            return "waiting for the other hosts"
        case "starting":
            return f"starting {workers(host)}"
        case "running":
            part = f"{len(host.pids)} of " if len(host.pids) != host.workers else ""
            again = f" ({host.restarts} restart{'s' * (host.restarts > 1)})" if host.restarts else ""
            return f"{part}{workers(host)}, round {host.round}{again}"
        case "restarting":
            reason, found, budget = printable(host.reason).rpartition(", restart ")
            return f"restarting ({budget}): {reason}" if found else f"restarting: {budget}"
        case "stopping" | "lost":
            return f"{host.state}: {printable(host.reason)}" if host.reason else host.state
        case _:
            return host.state


def workers(host: HostStatus) -> str:
    """Count the workers of a host."""
    return "1 worker" if host.workers == 1 else f"{'its' if host.workers is None else host.workers} workers"


def clock(seconds: float) -> str:
    """Give a time that is counted up."""
    whole = int(max(seconds, 0))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def printable(text: str) -> str:
    """Give the first line of a text without anything that a terminal would obey."""
    first = text.strip().partition("\n")[0].rstrip().removesuffix(":")
    return "".join(one if one.isprintable() else "?" for one in re.sub(r"\x1b\[[0-9;]*m", "", first))


@dataclass(slots=True)
class PlainLines:
    """Tells each state of each host once, if it lasts; hosts in the same state share a line."""

    _told: dict[int, str] = field(default_factory=dict)

    def due(self, hosts: Sequence[HostStatus], now: float) -> list[str]:
        """
        Give the lines that are to be printed now.

        :param hosts: in the order of the launch
        :param now: by the clock that the states were told by
        """
        news = [host for host in hosts if host.state != "ended" and self._told.get(host.agent) != _key(host)]
        told: dict[str, list[str]] = {state_text(host): [] for host in news if now - host.since >= SETTLED}
        for host in news:
            if (text := state_text(host)) in told:  # those that have just come to it too, so that a line is enough
                self._told[host.agent] = _key(host)
                told[text].append(printable(host.hostname))
        return [f"{listed(names)}: {text}" for text, names in told.items()]


def _key(host: HostStatus) -> str:
    """Tell states apart: that fewer workers run is not news."""
    return f"{host.state} {host.round} {host.reason}"


def listed(names: Sequence[str]) -> str:
    """Name some hosts and count the others."""
    if len(names) <= NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: NAMED - 1])} and {len(names) - NAMED + 1} more"
