"""An agent that goes on by itself: started apart from whoever asked, found again by what it is, and stopped."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lattice.core.dataclass import dataclass

BOOT = Path("/proc/sys/kernel/random/boot_id")
GO = ("/bin/sh", "-c", 'read -r go && exec "$@" </dev/null', "sh")
"""runs a program once it is told to; if whoever should tell it is gone, it ends"""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine, told apart from a later one with the same number."""

    pid: int
    born: int
    """ticks after the machine's start"""
    boot: str
    """which start of the machine"""

    def open(self) -> int | None:
        """Give a pidfd for it; None if it has ended."""
        if self.boot != boot():
            return None
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return None
        if birth(self.pid) == self.born:
            return descriptor
        os.close(descriptor)
        return None

    def lives(self) -> bool:
        """Tell whether it has not ended."""
        descriptor = self.open()
        if descriptor is None:
            return False
        try:
            return not _ended(descriptor, 0.0)
        finally:
            os.close(descriptor)

    def signal(self, number: int) -> bool:
        """Send a signal; false if it has ended."""
        descriptor = self.open()
        if descriptor is None:
            return False
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def wait(self, within: float) -> bool:
        """Wait for its end; false if it did not come in that time."""
        descriptor = self.open()
        if descriptor is None:
            return True
        try:
            return _ended(descriptor, within)
        finally:
            os.close(descriptor)


def start(
    argv: Sequence[str], environ: Mapping[str, str], cwd: str, output: Path, keep: Callable[[Process], None]
) -> Process:
    """
    Start a program apart from this process: in a session of its own, with nothing of ours open.

    :param argv: the program and its arguments
    :param environ: its environment
    :param cwd: its working directory
    :param output: the file that its output is added to
    :param keep: writes down what it is; nothing of it runs before, so that none is ever forgotten
    """
    import subprocess

    with output.open("ab") as file:
        child = subprocess.Popen(
            [*GO, *argv],
            env=dict(environ),
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    process = Process(child.pid, birth(child.pid), boot())
    assert child.stdin is not None
    with child.stdin:
        keep(process)
        child.stdin.write(b"go\n")
    child.returncode = 0  # nobody waits for it here: it shall outlive us
    return process


def exit_code(pid: int) -> int:
    """Tell how a process that this one started has ended; 1 if that cannot be known."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return 1
    return ended.si_status if ended is not None and ended.si_code == os.CLD_EXITED else 1


def boot() -> str:
    """Name this start of the machine."""
    return BOOT.read_text(encoding="ascii").strip()


def birth(pid: int) -> int:
    """Tell when a process was started, in ticks; -1 if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return -1
    return int(stat.rpartition(")")[2].split()[19])


def _ended(pidfd: int, within: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    deadline = time.monotonic() + within
    while True:
        left = max(deadline - time.monotonic(), 0.0)
        if poll.poll(left * 1000):
            return True
        if not left:
            return False
