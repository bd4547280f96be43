"""Starts workers through the guard, which outlives this process just long enough to leave no worker behind."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from lattice.errors import LatticeError, WorkerNotStarted
from lattice.process import guard
from lattice.process.sweeping import Household, sweep
from lattice.process.workers import Worker

PR_SET_CHILD_SUBREAPER = 36
ANSWER_TIMEOUT = 60.0
# What a Python interpreter may need to be found and loaded. Nothing else: the guard of an agent that is itself a
# worker must not carry the outer agent's marker, or it would be killed before it can look after its own workers.
KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "TMPDIR")


class Guard:
    """
    The agent's side of the guard. Make it in the main thread, before anything else is started.

    This process becomes a child subreaper: whatever workers leave behind becomes its child.
    """

    def __init__(self, folder: str = "", stopped_at_most: float = 0.0) -> None:
        """
        Start the guard.

        :param folder: removed when this process is gone, and all that it started; "" for none
        :param stopped_at_most: seconds for which this process may be stopped (SIGSTOP); the guard ends it then, and
            all that it started. 0 for no limit
        """
        self._arguments = (str(stopped_at_most), folder)
        become_subreaper()
        # Ignored by a parent (nohup-like wrappers do that), exit statuses would be thrown away by the kernel.
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Children that were there before the first worker are nobody's remains.
        self._bystanders = frozenset(p.pid for p in guard.read_processes() if p.parent == os.getpid())
        self._workers: dict[int, Worker] = {}
        self._sessions: set[int] = set()
        self._markers: set[bytes] = set()
        self._start()

    def fileno(self) -> int:
        """Give the control socket, for selectors: readable outside of a call means that the guard is gone."""
        return self._control.fileno()

    @property
    def pid(self) -> int:
        """The guard's process."""
        return self._pid

    def restart(self) -> None:
        """Start another guard in place of a dead one and hand it the running workers, which notice nothing."""
        self._control.close()
        self._end_process()
        self._start()

    def spawn(
        self,
        argv: Sequence[str],
        environ: Mapping[str, str],
        cwd: str,
        stdin: int | None,
        stdout: int,
        stderr: int,
        marker: str,
    ) -> Worker:
        """
        Start a worker in a session of its own, with no descriptors but these three. A dead guard is replaced.

        :param argv: the program, looked up in the worker's PATH unless it has a slash, and its arguments
        :param environ: its whole environment
        :param cwd: its working directory
        :param stdin: descriptor for its standard input, None for /dev/null
        :param stdout: descriptor for its standard output; the caller closes its own copy
        :param stderr: descriptor for its standard error; the caller closes its own copy
        :param marker: name of a variable in ``environ`` by which everything descended from the worker is found
        :return: the worker, already a child of this process
        :raises WorkerNotStarted: the program could not be executed
        """
        variables = {os.fsencode(name): os.fsencode(value) for name, value in environ.items()}
        tag = os.fsencode(f"{marker}={environ[marker]}")
        self._markers.add(tag)
        request = ("spawn", [os.fsencode(word) for word in argv], variables, os.fsencode(cwd), tag, stdin is not None)
        descriptors = (stdout, stderr) if stdin is None else (stdin, stdout, stderr)
        try:
            guard.send(self._control, request, descriptors)
        except OSError:
            self.restart()
            guard.send(self._control, request, descriptors)
        try:
            answer, _ = guard.receive(self._control)
        except (OSError, EOFError) as error:
            # Whether the worker runs can't be known. Not tried again, so that there are never two of it.
            self.restart()
            raise WorkerNotStarted(
                f"cannot start {argv[0]!r}: the guard process ended, or did not answer in {ANSWER_TIMEOUT:.0f}s."
            ) from error
        match answer:
            case ("started", int(pid)):
                worker = self._workers[pid] = Worker(pid)
                self._sessions.add(pid)
                return worker
            case ("failed", str(stage), int(number)):
                raise _not_started(argv, cwd, stage, number)
        raise LatticeError(f"the guard (process {self._pid}) gave an answer that makes no sense: {answer!r}")

    def adopt(self, pid: int) -> Worker:
        """
        Look after a child of this process as after a worker that the guard started, until it has ended.

        :param pid: leader of a session of its own, with a marker that was given to :meth:`spawn` before
        :return: the worker
        """
        worker = self._workers[pid] = Worker(pid)
        self._sessions.add(pid)
        try:
            guard.send(self._control, ("look after", [pid], sorted(self._markers)))
        except OSError:
            self.restart()  # which hands over all of them
        return worker

    def sweep(self, keep: Iterable[int] = (), spare: Iterable[int] = ()) -> tuple[int, ...]:
        """
        Kill and reap what ended workers left behind, and workers that are not to be kept. Takes no exit status.

        While some workers are kept, an orphan that made a session of its own stays, because it may be one of theirs.

        :param keep: pids of workers that go on
        :param spare: pids of other processes that stay, with their descendants
        :return: pids that could not be killed in time (stuck in the kernel)
        """
        kept = frozenset(keep)
        self._workers = {pid: worker for pid, worker in self._workers.items() if worker.exit is None}
        ended = frozenset(self._sessions - kept)
        left = sweep(
            Household(
                unreaped=frozenset(self._workers),
                kept=kept,
                spared=self._bystanders | {self._pid, *spare},
                ended=ended,
            )
        )
        emptied = ended - frozenset(self._workers)
        if emptied and not left:
            self._sessions -= emptied
            try:
                guard.send(self._control, ("forget", sorted(emptied)))
            except OSError:
                pass  # the guard is gone: the next one is told only of the others
        return left

    def close(self) -> None:
        """End the guard, which kills every worker that is left and all that descended from it."""
        try:
            if not self._sessions:
                guard.send(self._control, ("leave",))
        except OSError:
            pass
        self._control.close()
        self._end_process(within=guard.KILL_TIMEOUT + 5)

    def _start(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._control.settimeout(ANSWER_TIMEOUT)
            environ = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
            # No fork here: this process may have threads. Signals stay blocked until the guard has seen to them.
            self._pid = os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", str(Path(guard.__file__).resolve()), str(os.getpid()), *self._arguments],
                environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_RDWR, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_RDWR, 0),
                ],
                setsid=True,
                setsigmask=signal.valid_signals(),
                setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
            )
        self._pidfd = os.pidfd_open(self._pid)
        if self._sessions:
            guard.send(self._control, ("look after", sorted(self._sessions), sorted(self._markers)))

    def _end_process(self, within: float = 0.0) -> None:
        if self._pidfd < 0:
            return
        if not _wait_readable(self._pidfd, within):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
        os.close(self._pidfd)
        self._pidfd = -1


def open_standard_descriptors() -> None:
    """Have something behind 0, 1 and 2: closed by whoever started the agent, they would be given to our own sockets."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= 2:
        descriptor = os.dup(descriptor)
    os.close(descriptor)


def become_subreaper() -> None:
    """Let orphans among this process's descendants become its children."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise LatticeError(f"cannot become a child subreaper: {os.strerror(ctypes.get_errno())}; Linux is needed.")


def _wait_readable(descriptor: int, within: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(within * 1000))


def _not_started(argv: Sequence[str], cwd: str, stage: str, number: int) -> WorkerNotStarted:
    program = argv[0]
    reason = os.strerror(number)
    where = f"cannot start {program!r}"
    match stage, number:
        case "directory", _:
            error = WorkerNotStarted(f"{where} in {cwd!r}: {reason}. Does the working directory exist on this node?")
        case "program", errno.ENOENT if "/" not in program:
            error = WorkerNotStarted(f"{where}: not found in PATH. Install it on this node, or give its path.")
        case "program", errno.ENOENT if (interpreter := _interpreter(program, cwd)) is not None:
            error = WorkerNotStarted(f"{where}: its first line names {interpreter!r}, which does not exist here.")
        case "program", errno.ENOENT:
            error = WorkerNotStarted(f"{where}: {reason} (looked at from {cwd}).")
        case "program", errno.EACCES:
            error = WorkerNotStarted(f"{where}: {reason}. Make it executable: chmod +x {program}")
        case "program", errno.ENOEXEC:
            error = WorkerNotStarted(
                f"{where}: {reason}. A script needs a first line such as #!/bin/sh; a binary must be for this machine."
            )
        case "program", errno.E2BIG:
            error = WorkerNotStarted(f"{where}: {reason}. Arguments and environment together exceed the system limit.")
        case _:
            error = WorkerNotStarted(f"{where}: {reason} ({stage}).")
    if stage == "program" and number == errno.ENOENT:
        error.exit_code = 127
    return error


def _interpreter(program: str, cwd: str) -> str | None:
    try:
        with (Path(cwd) / program).open("rb") as file:
            first = file.readline(256)
    except OSError:
        return None
    return os.fsdecode(first[2:].split(None, 1)[0]) if first.startswith(b"#!") and first[2:].strip() else None
