"""What the meaning of options depends on besides the options: this machine, its kernel, its devices, its names."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from lattice.errors import UsageError

KERNEL = (5, 4)


class Machine:
    """The machine that this agent runs on; a test puts another in its place."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.environ = os.environ if environ is None else environ
        self.interpreter = sys.executable
        self.system = os.uname().sysname
        self.release = os.uname().release

    def devices(self, kind: str) -> int:
        """
        Count what workers can be counted by.

        :param kind: auto, cpu or gpu
        """
        from lattice.process.devices import count

        return count(kind, self.environ)

    def owns(self, host: str) -> bool:
        """
        Tell whether a host is this machine: by its name, or because one of its addresses can be bound here.

        :param host: a name or an address; one that does not resolve is not ours
        """
        import socket  # not needed for a single node

        name = socket.gethostname()
        if host.lower() in (name.lower(), name.lower().partition(".")[0]):
            return True
        try:
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
        except (OSError, UnicodeError):
            return False
        return any(_can_bind(family, address) for family, _, _, _, address in addresses)

    def made_up_name(self) -> str:
        """Make up a run id that can be read aloud."""
        consonants, vowels = "bdfgklmnprstvz", "aeiou"
        random = os.urandom(9)
        letters = [(vowels if i % 2 else consonants)[byte % (5 if i % 2 else 14)] for i, byte in enumerate(random[:8])]
        return f"{''.join(letters[:4])}-{''.join(letters[4:])}-{random[8] % 90 + 10}"


def _can_bind(family: int, address: tuple[object, ...]) -> bool:
    import socket

    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address[0], 0, *address[2:]))
        except OSError:
            return False
    return True


def loopback(host: str) -> bool:
    """Tell whether a host is written as this very machine, and so is another one on every node."""
    return host.lower() in ("localhost", "::1") or host.startswith("127.")


def check_platform(system: str, release: str) -> None:
    """
    Refuse a system that lacks what supervision rests on.

    :param system: name of the kernel, such as Linux
    :param release: its release, such as 6.1.0-18-amd64
    :raises UsageError: elsewhere than on Linux 5.4 or newer
    """
    if system != "Linux":
        raise UsageError(f"this is {system}; Lattice runs workers on Linux {KERNEL[0]}.{KERNEL[1]} or newer only")
    numbers = release.replace("-", ".").split(".")[:2]
    if all(number.isdigit() for number in numbers) and tuple(map(int, numbers)) < KERNEL:
        raise UsageError(f"this is Linux {release}; Lattice needs Linux {KERNEL[0]}.{KERNEL[1]} or newer")
