"""Under which addresses the hosts of a launch reach each other: decided from how each was reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lattice.core.dataclass import dataclass
from lattice.process.addresses import ANYWHERE, LOOPBACK, facing, is_loopback, of_own_name


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node is."""

    here: bool
    """on the launcher's own machine"""
    address: str
    """its own, as far as it is known"""
    caller: str
    """the launcher's, as it is seen there; empty if it is not known"""


def reached(environ: Mapping[str, str]) -> dict[str, Any]:
    """
    Tell, on a node, what is known about the way to it.

    Which of it counts is the launcher's to say: variables of a login of the user's may have come along.

    :param environ: its variables
    :return: for each way (``ssh``, ``srun``) the launcher's address and ours, and what to call us otherwise
    """
    found = {}
    words = environ.get("SSH_CONNECTION", "").split()
    if len(words) == 4:
        found["ssh"] = [words[0], words[2]]
    launcher = environ.get("SLURM_LAUNCH_NODE_IPADDR")
    if launcher:
        found["srun"] = [launcher, facing(launcher) or ""]
    return {"reached": found, "otherwise": facing(ANYWHERE) or of_own_name()}


def place(transport: str, facts: Mapping[str, Any], own_machine: str) -> Place:
    """
    Tell where a node is.

    :param transport: how it was started
    :param facts: what it said, see :func:`reached`
    :param own_machine: how the launcher's machine calls itself
    """
    caller, address = facts["reached"].get(transport, ("", ""))
    if transport == "local" or (is_loopback(address) and facts["machine"] == own_machine):
        return Place(True, LOOPBACK, "")
    if not address or is_loopback(address):  # a tunnel ends there
        return Place(False, facts["otherwise"], "")
    return Place(False, address, caller)


def facing_node(transport: str, facts: Mapping[str, Any], given: str) -> tuple[str, ...]:
    """
    List the launcher's addresses by which a node may reach it, the best first.

    :param transport: how it was started
    :param facts: what it said, see :func:`reached`
    :param given: its name
    """
    caller, address = facts["reached"].get(transport, ("", ""))
    return tuple(filter(None, (caller, facing(address or given))))


def addresses(
    places: Sequence[Place], is_own: Callable[[str], bool], facing: Callable[[str], str | None]
) -> tuple[str, ...]:
    """
    Decide for each node under which address the others find it.

    :param places: of all nodes
    :param is_own: tells whether an address is one of the launcher's machine: behind a jump host or a router it is not
    :param facing: tells which address of the launcher's machine faces another
    """
    away = [one for one in places if not one.here]
    seen = (one.caller for one in away if one.caller and not is_loopback(one.caller) and is_own(one.caller))
    here = next(seen, None) or next(filter(None, (facing(one.address) for one in away)), LOOPBACK)
    return tuple(here if one.here else one.address for one in places)
