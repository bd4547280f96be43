"""How much may be sent: what is too large is refused before the kernel kills somebody for it."""

from __future__ import annotations

import os
import socket

from lattice.errors import TooLarge
from lattice.process.cgroups import memory_groups, read

LEAST = 16 << 20
"""bytes that are never too many: how full a machine is can't be told so exactly"""
GIGABYTE = 1 << 30


def room() -> int:
    """Tell how many bytes may be sent or received here: half of the memory, and no more than is free of it."""
    bounds = [(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), available(read("/proc/meminfo")))]
    for group in memory_groups():
        limit, used = group.limit(), group.used()
        if limit is not None:
            bounds.append((limit, None if used is None else limit - used))
    halves = [memory // 2 for memory, _ in bounds]
    free = [bytes_ for _, bytes_ in bounds if bytes_ is not None]
    return max(min(halves + free), LEAST)


def available(meminfo: str) -> int | None:
    """Give the bytes that could be used without swapping, from the text of ``/proc/meminfo``; None if it says none."""
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) << 10
    return None


def machine() -> str:
    """Name this machine, or container: agents that give the same name share its memory."""
    return f"{read('/proc/sys/kernel/random/boot_id').strip()} {socket.gethostname()}"


def refuse_beyond(limit: int, size: int, what: str, where: str = "") -> None:
    """
    Refuse what is too large.

    :param limit: what :func:`room` said, here or on another host
    :param size: bytes
    :param what: how the error calls it
    :param where: whose memory that is, if not that of this host
    :raises TooLarge: it is
    """
    if size > limit:
        raise TooLarge(
            f"{what} takes {size / GIGABYTE:.2f} GiB or more, and {limit / GIGABYTE:.2f} GiB is the most that is sent"
            f"{f' to {where}' if where else ''}: half of the memory, and no more than is free. Write it to a file that "
            "all hosts can read, and send the path."
        )
