"""Which addresses and interfaces this machine has, and which of them face another."""

from __future__ import annotations

import fcntl
import socket
from pathlib import Path
from struct import pack

LOOPBACK = "127.0.0.1"
ANYWHERE = "192.0.2.1"
"""an address that belongs to nobody: what faces it faces the rest of the world"""
_SIOCGIFADDR = 0x8915


def facing(host: str, port: int = 9) -> str | None:
    """
    Tell which of our addresses packets to a host come from. None is sent.

    :param host: a name or an address
    :param port: of no importance
    :return: None if no way leads there
    """
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def is_loopback(host: str) -> bool:
    """
    Tell whether a host is meant for this machine alone.

    By its spelling: a machine's own name often resolves to a loopback address on that machine, and only there.
    """
    return host in ("localhost", "::1") or host.startswith("127.")


def is_own(address: str) -> bool:
    """Tell whether an address is one of this machine's."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
            return True
    except OSError:
        return False


def of_own_name() -> str:
    """Look up the name of this machine; gives a loopback address if it has no other, or none."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return LOOPBACK


def interface_of(address: str) -> str | None:
    """Name the interface that has an address first; None if there is no such one."""
    if ":" in address:
        wanted = socket.inet_pton(socket.AF_INET6, address.partition("%")[0]).hex()
        lines = (line.split() for line in Path("/proc/net/if_inet6").read_text().splitlines())
        return next((words[5] for words in lines if words[0] == wanted), None)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asking, _SIOCGIFADDR, pack("256s", name.encode()))
            except OSError:
                continue  # it has none of this family
            if socket.inet_ntop(socket.AF_INET, answer[20:24]) == address:
                return name
    return None
