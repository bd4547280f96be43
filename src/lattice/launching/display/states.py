"""How each host of a launch stands: events in, states out. No clock, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

State = Literal["connecting", "connected", "joining", "starting", "running", "restarting", "stopping", "ended", "lost"]
WAITS_FOR: Mapping[str, str] = {
    "connecting": "its agent to answer",
    "connected": "the agents of the other hosts, and what to run",
    "joining": "the other hosts to join",
    "starting": "its workers to start",
    "restarting": "all workers of the last round to end, and the next round",
    "stopping": "its workers to end",
}


@dataclass(frozen=True, slots=True)
class HostStatus:
    """How one host stands."""

    hostname: str
    """as it was given to the launch"""
    agent: int
    """its place among the agents: a host may have several"""
    state: State
    since: float
    """when that state began, by ``time.monotonic()``"""
    pid: int | None = None
    """of its agent, on that host"""
    workers: int | None = None
    """how many it has in a round"""
    pids: tuple[int, ...] = ()
    """of those that run"""
    round: int = 0
    restarts: int = 0
    """failures so far after which the function was run again"""
    reason: str = ""
    """why it restarts, stops or is lost"""

    @property
    def waits_for(self) -> str:
        """What must happen before it gets on; empty while workers run, and at the end."""
        return WAITS_FOR.get(self.state, "")


def reported(host: HostStatus, event: str, facts: Mapping[str, Any], now: float) -> HostStatus:
    """
    Take an event of an agent's journal.

    :param host: how it stood
    :param event: its name
    :param facts: what the journal says of it
    :param now: by the launcher's clock
    :return: how it stands
    """
    match event:
        case "agent started":
            fresh = replace(host, workers=facts["workers"], pids=(), round=0, restarts=0, reason="")
            return entered(fresh, "joining", now)
        case "round started":
            known = replace(host, round=facts["round"], restarts=facts["restarts"])
            return entered(known, "starting", now)
        case "workers started":
            return entered(replace(host, pids=tuple(facts["pids"])), "running", now)
        case "worker exited":
            return replace(host, pids=tuple(pid for pid in host.pids if pid != facts["pid"]))
        case "workers stopping":
            # The words of lattice.core.incident: what uses the budget says so at its end.
            again = ", restart " in facts["reason"] or facts["reason"].startswith("lost ")
            return entered(host, "restarting" if again else "stopping", now, facts["reason"])
        case _:
            return host


def entered(host: HostStatus, state: State, now: float, reason: str = "") -> HostStatus:
    """Let a host begin to be in a state; in the same one as before it goes on."""
    since = host.since if host.state == state else now
    return replace(host, state=state, since=since, reason=reason)
