"""Starts the program of a node on this machine, without SSH."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from lattice.launching.hosts import HostSpec
from lattice.launching.transports.child import Child, Command, Ending
from lattice.launching.transports.reasons import of_program


class LocalTransport:
    """Children of this process, with its environment and working directory, each in a session of its own."""

    def __init__(self, program: tuple[str, ...]) -> None:
        self._program = program

    def start(self, host: HostSpec) -> Child:
        """
        Start the program here.

        :param host: an entry for this machine
        """
        return Child(_Plan(host.given, self._program))


class _Plan:
    tidies_up = False

    def __init__(self, given: str, program: tuple[str, ...]) -> None:
        self._given = given
        self._program = program

    def command(self, stopped: threading.Event) -> Command:
        return Command(self._program, dict(os.environ))

    def line(self, text: str) -> bool:
        return True

    def ended(self, ending: Ending) -> bool:
        return False

    def explain(self, ending: Ending) -> str:
        return of_program(self._given, self._program, ending)

    def wake(self) -> None:
        pass


def make(program: tuple[str, ...], ssh_config_file: str | Path | None) -> LocalTransport:
    """Make the transport; SSH has no part in it."""
    return LocalTransport(program)
