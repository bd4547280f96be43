"""Hosts on this machine: each with its own network, address and name, and a network that can be cut."""

from __future__ import annotations

import contextlib
import itertools
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.lab.scripts import HERE, call, require

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Network:
    """Hosts that are up."""

    names: tuple[str, ...]
    variables: dict[str, str]

    def address(self, host: str) -> str:
        """Give the address of a host."""
        return f"10.77.0.{self.names.index(host) + 1}"

    def on(self, host: str, *argv: str) -> list[str]:
        """
        Give the command that runs a program as if on a host.

        The program replaces the command's process: its pid, its exit code and the signals it gets are its own.
        """
        assert host in self.names, f"no host {host}"
        return [str(HERE / "network/on.sh"), host, *argv]

    def partition(self, *hosts: str) -> None:
        """Cut these hosts off from all others, silently: links stay up, packets vanish. They reach each other."""
        call("network/partition.sh", *hosts, variables=self.variables)

    def forget_own_addresses(self) -> None:
        """Have each host's own name lead to its loopback, as many installers set it up."""
        for name in self.names:
            table = Path(f"/etc/netns/{name}/hosts")
            lines = table.read_text().splitlines()
            changed = [f"127.0.1.1 {name}" if line.split()[1] == name else line for line in lines]
            table.write_text("\n".join(changed) + "\n")

    def heal(self, *hosts: str) -> None:
        """Undo the cuts of these hosts, or of all."""
        call("network/heal.sh", *hosts, variables=self.variables)


@contextlib.contextmanager
def network(count: int) -> Iterator[Network]:
    """
    Have hosts for the length of a block; whatever still runs on them at its end is killed.

    :param count: how many
    """
    require("ip", "nsenter", "unshare")
    with tempfile.TemporaryDirectory(prefix="lattice-lab-") as folder:
        # The name is a part of every host's name, and must differ between tests that run at the same time.
        variables = {"LAB_DIR": folder, "LAB_NAME": f"t{os.getpid()}x{next(_numbers)}h"}
        try:
            names = call("network/up.sh", str(count), variables=variables).split()
            yield Network(tuple(names), variables)
        finally:
            call("network/down.sh", variables=variables)
    assert not [name for name in names if Path(f"/run/netns/{name}").exists()], "a namespace is left"
