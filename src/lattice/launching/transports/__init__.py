"""How the program of a node is started, on this machine or another: one file per way, chosen by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

from lattice.launching.hosts import HostSpec

TRANSPORTS = ("local", "ssh", "srun")
CALL_BACK = ("srun",)
"""those whose stream is slow and not encrypted: nodes leave it for a connection back"""
NODE_MODULE = "lattice.launching.node"


class NodeProcess(Protocol):
    """A node's program that was asked to start, and the one stream between it and us."""

    @property
    def stdin(self) -> int:
        """Descriptor, blocking: what is written here the program reads from its standard input."""

    @property
    def stdout(self) -> int:
        """Descriptor, blocking: what the program writes to its standard output, after whatever a login shell wrote."""

    @property
    def pidfd(self) -> int:
        """Descriptor for selectors: readable for good once the local end (ssh, srun, the program itself) has ended."""

    def listen(self, hear: Callable[[bytes], None]) -> None:
        """Have each line that comes to standard error from now on given to somebody too, in any thread."""

    def stderr(self) -> str:
        """Give the last lines written to standard error so far, by the program or by what carries it."""

    def poll(self) -> int | None:
        """Give how the local end ended, negative for a signal; None while it is being started or runs."""

    def diagnose(self) -> str:
        """Say why there is no word from the program, after an end or a wait that was too long: facts, then a step."""

    def kill(self) -> None:
        """End the local end, reap it and close the descriptors; the far end ends because its stream does."""


class Transport(Protocol):
    """A way to start the program on a host."""

    def start(self, host: HostSpec) -> NodeProcess:
        """
        Begin to start the program, and return at once: whatever goes wrong shows as an end of the process.

        :param host: where
        """


def node_program(python: str | None = None) -> tuple[str, ...]:
    """
    Give the command of a node. It carries no variable and no secret: everything else travels over the stream.

    :param python: the interpreter on the hosts; None for the path of this one
    """
    return (python or sys.executable, "-m", NODE_MODULE)


def transport(name: str, program: Sequence[str], ssh_config_file: str | Path | None = None) -> Transport:
    """
    Load a transport by its name in :data:`TRANSPORTS`.

    :param name: ``local``, ``ssh`` or ``srun``
    :param program: what to start on each host; see :func:`node_program`
    :param ssh_config_file: instead of the user's and the system's SSH configuration
    """
    if name not in TRANSPORTS:
        raise ValueError(name)
    made: Transport = import_module(f"lattice.launching.transports.{name}").make(tuple(program), ssh_config_file)
    return made
