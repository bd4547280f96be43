"""A child process with a stream to it: its errors are kept, its end is seen and explained, nothing of it is left."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from lattice.core.dataclass import dataclass

KEPT_STDERR = 32 * 1024
KEPT_LINES = 100
NOT_FOUND = 127
STREAM_BUFFER = 1 << 20
TIDY_UP_TIMEOUT = 3.0


@dataclass(frozen=True, slots=True)
class Command:
    """A program to start."""

    argv: tuple[str, ...]
    environ: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ending:
    """How a child ended, or how far it has come."""

    status: int | None
    """Its exit code, or a signal's number, negative; None if it has not ended."""
    stderr: str


class Plan(Protocol):
    """What a transport knows about a child. Called in the child's own thread, except for explain() and wake()."""

    tidies_up: bool
    """It ends what it started elsewhere when it gets SIGTERM. All others are killed, with their process group."""

    def command(self, stopped: threading.Event) -> Command | None:
        """Give the program, as soon as it may start; None if it was stopped before."""

    def line(self, text: str) -> bool:
        """See a line of standard error, and tell whether to keep it."""

    def ended(self, ending: Ending) -> bool:
        """See the end, and tell whether to start it once more."""

    def explain(self, ending: Ending) -> str:
        """Say in words why there is no word from the program."""

    def wake(self) -> None:
        """Let command() notice that it was stopped."""


class Child:
    """
    The program of a plan, started by a thread of its own which also waits for it.

    The thread is there so that standard error never fills up, and so that a start that was turned away at the door
    can be tried again over the same stream: nothing has been read from it by then.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._closed = False
        self._running: int | None = None
        self._ending: Ending | None = None
        self._tail = b""
        self._part = b""
        self._hear: Callable[[bytes], None] = lambda line: None
        self._theirs_in, self.stdin = _pipe(STREAM_BUFFER)
        self.stdout, self._theirs_out = _pipe(STREAM_BUFFER)
        self.pidfd = os.eventfd(0, os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._live, name="lattice transport", daemon=True)
        self._thread.start()

    def listen(self, hear: Callable[[bytes], None]) -> None:
        """Have each line that comes to standard error from now on given to somebody too, in this child's thread."""
        self._hear = hear

    def stderr(self) -> str:
        """Give the last lines that were written to standard error so far."""
        text = (self._tail + self._part).decode(errors="replace")
        return "\n".join(text.splitlines()[-KEPT_LINES:])

    def poll(self) -> int | None:
        """Give how it ended, negative for a signal; None while it is being started or runs."""
        return None if self._ending is None else self._ending.status

    def diagnose(self) -> str:
        """Say why there is no node: facts, then what to do."""
        return self._plan.explain(self._ending or Ending(None, self.stderr()))

    def kill(self) -> None:
        """End it and what belongs to it, reap it, close the descriptors. More than once is fine."""
        with self._lock:
            self._stopped.set()
            if self._running is not None:
                self._end(self._running, signal.SIGTERM)
        self._plan.wake()
        self._thread.join(TIDY_UP_TIMEOUT)
        with self._lock:
            if self._running is not None:
                self._end(self._running, signal.SIGKILL)
        self._thread.join()
        if not self._closed:
            self._closed = True
            for descriptor in (self.stdin, self.stdout, self.pidfd):
                os.close(descriptor)

    def _live(self) -> None:
        try:
            ending = self._run()
            while self._plan.ended(ending) and not self._stopped.is_set():
                ending = self._run()
        except Exception as error:  # a fault of ours must not look like a child that runs for ever
            ending = Ending(1, f"{self.stderr()}\n{type(error).__name__}: {error}".lstrip("\n"))
        self._ending = ending
        os.close(self._theirs_in)
        os.close(self._theirs_out)
        os.eventfd_write(self.pidfd, 1)

    def _run(self) -> Ending:
        self._tail = self._part = b""
        command = self._plan.command(self._stopped)
        if command is None:
            return Ending(-signal.SIGKILL, "")
        errors, theirs = _pipe()
        try:
            with self._lock:
                try:
                    if self._stopped.is_set():
                        return Ending(-signal.SIGKILL, "")
                    pid = self._running = _spawn(command, self._theirs_in, self._theirs_out, theirs)
                except OSError as error:
                    return Ending(NOT_FOUND, f"{command.argv[0]}: {error.strerror}")
                finally:
                    os.close(theirs)
            return Ending(self._wait(pid, errors), self.stderr())
        finally:
            os.close(errors)

    def _wait(self, pid: int, errors: int) -> int:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:  # somebody else in this process reaps all children
            return self._reap(pid)
        try:
            os.set_blocking(errors, False)
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.register(errors, select.POLLIN)
            while not any(descriptor == pidfd for descriptor, _ in poll.poll()):
                if not self._read(errors):
                    poll.unregister(errors)
            # Not until the end of the file: something that went on in the background may hold it open for hours.
            self._read(errors)
            self._end_line()
            return self._reap(pid)
        finally:
            os.close(pidfd)

    def _reap(self, pid: int) -> int:
        with self._lock:
            # Until it is reaped the number stays its own, and its group's: what ssh started to get through ends here.
            if not self._plan.tidies_up:
                self._end(pid, signal.SIGKILL)
            self._running = None
            try:
                result = os.waitid(os.P_PID, pid, os.WEXITED)
            except ChildProcessError:
                return 1
        assert result is not None
        return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status

    def _end(self, pid: int, number: int) -> None:
        try:
            if self._plan.tidies_up:
                os.kill(pid, number)
            else:
                os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass

    def _read(self, errors: int) -> bool:
        while True:
            try:
                chunk = os.read(errors, KEPT_STDERR)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            *lines, self._part = (self._part + chunk).split(b"\n")
            self._keep(lines)
            self._part = self._part[-KEPT_STDERR:]

    def _end_line(self) -> None:
        if self._part:
            last, self._part = self._part, b""
            self._keep([last])

    def _keep(self, lines: list[bytes]) -> None:
        kept = [line for line in lines if self._plan.line(line.decode(errors="replace").rstrip("\r"))]
        self._tail = (self._tail + b"".join(line + b"\n" for line in kept))[-KEPT_STDERR:]
        for line in kept:
            self._hear(line + b"\n")


def _pipe(size: int = 0) -> tuple[int, int]:
    ends = []
    for end in os.pipe():
        if end <= 2:  # whoever started this had closed a standard descriptor
            ends.append(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3))
            os.close(end)
        else:
            ends.append(end)
    if size:
        try:
            fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, size)
        except OSError:
            pass  # only slower: this user has many pipes
    return ends[0], ends[1]


def _spawn(command: Command, stdin: int, stdout: int, stderr: int) -> int:
    # No fork here: this process may have threads.
    return os.posix_spawnp(
        command.argv[0],
        command.argv,
        command.environ,
        file_actions=[
            *((os.POSIX_SPAWN_DUP2, source, number) for number, source in enumerate((stdin, stdout, stderr))),
            *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
    )


def _inheritable() -> list[int]:
    """List what whoever started this process left open: it would stay open for as long as a node lives."""
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        descriptor = int(entry.name)
        try:
            if descriptor > 2 and os.get_inheritable(descriptor):
                found.append(descriptor)
        except OSError:
            pass  # closed by another thread, or that of the listing itself
    return found
