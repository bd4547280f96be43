"""One worker process as the agent sees it: a pidfd that becomes readable when it ends, and an exit status read once."""

from __future__ import annotations

import os
import signal

from lattice.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Exit:
    """How a worker ended: with an exit code, or by a signal."""

    code: int | None = None
    signal: int | None = None

    @property
    def status(self) -> int:
        """The one number that a shell would show: the code, or 128 + the signal."""
        return self.code if self.signal is None and self.code is not None else 128 + (self.signal or 0)

    def __str__(self) -> str:
        if self.signal is None:
            return f"exit code {self.code}"
        try:
            return f"signal {self.signal} ({signal.Signals(self.signal).name})"
        except ValueError:
            return f"signal {self.signal}"


class Worker:
    """A running or ended worker, leader of its own session and process group, child of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        # Nobody but this object waits for the pid, so it can't have been given to another process in the meantime.
        self.pidfd = os.pidfd_open(pid)
        self.exit: Exit | None = None
        self.warm = False
        """whether it was forked from a zygote"""

    def fileno(self) -> int:
        """Give the pidfd, for selectors: readable means ended."""
        return self.pidfd

    def signal(self, number: int, *, group: bool = True) -> bool:
        """
        Send a signal, unless the worker has ended (what it left behind is for the sweep).

        :param number: the signal
        :param group: to its whole process group, otherwise to the worker process alone
        :return: whether there was somebody to get it
        """
        if self.poll() is not None:
            return False
        try:
            if group:
                os.killpg(self.pid, number)
            else:
                signal.pidfd_send_signal(self.pidfd, number)
        except ProcessLookupError:
            return False
        return True

    def signal_inside(self, pid: int, number: int) -> bool:
        """
        Send a signal to one process of this worker's session, the worker itself or one that it started.

        :param pid: that process
        :param number: the signal
        :return: whether there was somebody to get it
        """
        if pid == self.pid:
            return self.signal(number, group=False)
        try:
            if self.poll() is not None or os.getsid(pid) != self.pid:
                return False
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def poll(self) -> Exit | None:
        """
        Collect the exit status if the worker has ended.

        :return: how it ended, None while it runs
        """
        if self.exit is None and self.pidfd >= 0:
            result = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
            if result is not None:
                exited = result.si_code == os.CLD_EXITED
                self.exit = Exit(code=result.si_status) if exited else Exit(signal=result.si_status)
        return self.exit

    def close(self) -> None:
        """Give the pidfd back."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
