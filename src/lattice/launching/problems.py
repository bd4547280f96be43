"""What is wrong with hosts, in the words of one error."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lattice import __version__
from lattice.errors import AgentFailedError
from lattice.launching.hosts import HostSpec
from lattice.launching.room import refuse_beyond


def no_agents(told: Sequence[tuple[str, str]], begin: str = "no agent on") -> AgentFailedError:
    """
    Make one error of what is wrong with several hosts.

    :param told: each host, and what is wrong with it
    :param begin: what is wrong with all of them
    """
    told = [(host, reason.removeprefix(f"{host}: ")) for host, reason in told]
    if len(told) == 1:
        ((host, reason),) = told
        return AgentFailedError(f"{begin} {host}: {reason}", host=host)
    lines = "".join(f"\n  {host}: {reason}" for host, reason in told)
    return AgentFailedError(f"{begin} {len(told)} hosts:{lines}", host=told[0][0] if told else "")


def refuse_large(nodes: Iterable[tuple[HostSpec, Mapping[str, Any]]], size: int) -> None:
    """
    Refuse what a host has no room for; several agents there need as many times the memory.

    :param nodes: where it shall be sent, with what each node said of itself
    :param size: bytes
    :raises TooLarge: names the host
    """
    rooms: dict[str, list[tuple[int, str]]] = {}
    for host, facts in nodes:
        if host.transport != "local":  # those read it in our own memory
            rooms.setdefault(facts["machine"], []).append((facts["room"], host.given))
    for there in rooms.values():
        several = f", {len(there)} times for as many agents," if len(there) > 1 else ""
        least, name = min(there)
        refuse_beyond(least, size * len(there), f"the function with its arguments{several}", name)


def unlike(facts: Mapping[str, Any]) -> str:
    """Tell what about a node does not go with this launcher; nothing if all does."""
    here, there = platform.python_version(), facts["python"]
    if here.split(".")[:2] != there.split(".")[:2]:
        return f"it has Python {there} and the launcher {here}: functions cannot be sent between them."
    if facts["lattice"] != __version__:
        return f"it has Lattice {facts['lattice']} and the launcher {__version__}. Install the same on both."
    return ""
