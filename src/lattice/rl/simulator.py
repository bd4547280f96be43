"""
A simulator in a process of its own, which may crash, hang or give nonsense without harm to the worker.

It is forked from the worker, so that any environment factory will do, and ends with it. One that fails is started
again, after a pause that doubles with each failure in a row.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from lattice.rl.interfaces import Arrays
from lattice.rl.pipe import PIECE, Inflow, send
from lattice.rl.rollout import Play, serve
from lattice.rl.wire import BadMessage, Message

FAULTS = ("crash", "hang", "nan")
PR_SET_PDEATHSIG = 1
ANSWER = 10.0
"""seconds in which a simulator that waits for an order takes it"""
AHEAD = 2
"""orders that it may have: the one that it plays, and the next"""
SMALL = 1 << 16
"""bytes of parameters that a socket takes though nobody reads yet; others go to one that waits for them"""


class Backoff:
    """How long to wait before the next try."""

    def __init__(self, first: float = 0.5, most: float = 30.0) -> None:
        self._first, self._most = first, most
        self._next = first

    def failed(self) -> float:
        """Give the seconds to wait after one more failure."""
        pause, self._next = self._next, min(self._next * 2, self._most)
        return pause

    def succeeded(self) -> None:
        """Begin anew."""
        self._next = self._first


class Simulator:
    """The worker's handle of its simulator."""

    def __init__(
        self,
        play: Play,
        step_timeout: float,
        start_timeout: float,
        say: Callable[[str], None],
        backoff: Backoff | None = None,
    ) -> None:
        """
        Prepare; :meth:`tick` starts it.

        :param play: what it plays
        :param step_timeout: seconds without a step after which it hangs
        :param start_timeout: the same for its start
        :param say: takes a line about each failure
        :param backoff: pauses between failures
        """
        self._play = play
        self._timeouts = (step_timeout, start_timeout)
        self._say = say
        self._backoff = backoff or Backoff()
        self._clock = mmap.mmap(-1, 8)  # shared with the process: counts its steps
        self._count = memoryview(self._clock).cast("q")
        self._line: socket.socket | None = None
        self._inflow = Inflow()
        self._pid = 0
        self._seen = (0, 0.0)
        self._start_at = 0.0
        self._starts = 0
        self._up = False
        self._ordered: deque[int] = deque()
        self.faults = dict.fromkeys(FAULTS, 0)
        """how often it failed, by kind"""

    @property
    def pid(self) -> int:
        """Give the process; 0 while there is none."""
        return self._pid

    @property
    def descriptor(self) -> int:
        """Can be read when it has something to say; -1 while there is none."""
        return -1 if self._line is None else self._line.fileno()

    @property
    def ordered(self) -> int:
        """Tell how many trajectories may come of the orders that it has."""
        return sum(self._ordered)

    def wants(self, parameters: Arrays) -> bool:
        """Tell whether it may be given an order with these parameters."""
        if not self._up or len(self._ordered) >= AHEAD:
            return False
        return not self._ordered or sum(array.nbytes for array in parameters.values()) < SMALL

    def tick(self) -> list[Message]:
        """
        Start it if it is time to, notice if it hangs, and take what it has sent.

        :return: ``steps`` and ``evaluated`` messages
        """
        now = time.monotonic()
        if self._line is None:
            if now >= self._start_at:
                self._start(now)
            return []
        found, gone = self._read()
        if gone:
            self._failed("crash", f"ended with {self._reap()}")
        elif self._line is not None and (self._ordered or not self._up) and self._hangs(now):
            self._kill()
            self._failed("hang", f"did no step in {self._timeouts[self._count[0] == 0]:g}s")
        return found

    def go(self, version: int, parameters: Arrays, most: int = 1, evaluate: Mapping[str, Any] | None = None) -> None:
        """
        Give an order to one that wants it.

        :param version: of the policy that it plays with; its answer says it again
        :param parameters: newer ones; empty to go on with those that it has
        :param most: trajectories that may come of it, if they are short
        :param evaluate: what to evaluate; None to play on
        """
        if self._line is None or not self.wants(parameters):
            raise RuntimeError("the simulator takes no order")
        if not self._ordered:
            self._seen = (self._count[0], time.monotonic())
        self._ordered.append(most)
        self._line.settimeout(ANSWER)
        try:
            fields = {"version": version, "most": most, "evaluate": None if evaluate is None else dict(evaluate)}
            send(self._line, Message("go", fields, parameters))
        except OSError:
            pass  # it has gone, which the next tick sees; or it is stuck, and will be seen to hang
        self._line.setblocking(False)

    def close(self) -> None:
        """End it."""
        if self._line is not None:
            self._kill()
        self._count.release()
        self._clock.close()

    def _start(self, now: float) -> None:
        ours, theirs = socket.socketpair()
        self._count[0] = 0
        self._starts += 1
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        parent = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", DeprecationWarning
            )  # other threads are ZeroMQ's, which hold no lock of ours
            self._pid = os.fork()
        if not self._pid:
            os._exit(self._child(ours, theirs, parent))
        with suppress(OSError):
            os.setpgid(self._pid, 0)  # here and there, whoever comes first: it is killed as a group
        theirs.close()
        ours.setblocking(False)
        self._line, self._inflow = ours, Inflow()
        self._up = False
        self._ordered.clear()
        self._seen = (0, now)

    def _child(self, ours: socket.socket, theirs: socket.socket, parent: int) -> int:
        """Do all that the new process does."""
        code = 70
        try:
            os.setpgid(0, 0)
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
            if os.getppid() != parent:
                return code
            for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
            ours.close()
            _close_lines(keep=theirs.fileno())
            play = self._play
            again = Play(play.environment, play.policy, play.segment, play.seed + self._starts - 1)
            code = serve(theirs, again, self._count)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        finally:
            os._exit(code)  # nothing of the worker may be ended here, nor its end be waited for

    def _read(self) -> tuple[list[Message], bool]:
        """Take what has come, and tell whether the process is gone."""
        assert self._line is not None
        found: list[Message] = []
        while True:
            try:
                data = self._line.recv(PIECE)
            except BlockingIOError:
                return found, False
            except OSError:
                return found, True
            if not data:
                return found, True
            try:
                for message in self._inflow.feed(data):
                    self._hear(message, found)
            except BadMessage as error:  # something else wrote to its descriptor
                self._kill()
                self._failed("crash", f"sent what is no message: {error}")
            if self._line is None:
                return found, False

    def _hear(self, message: Message, found: list[Message]) -> None:
        match message.kind:
            case "ready":
                self._up = True
            case "failed":
                fault = message.text("fault")
                self._kill()
                self._failed(fault if fault in FAULTS else "crash", "failed:\n" + message.text("text", 5000).rstrip())
            case "steps" | "evaluated":
                self._backoff.succeeded()
                if message.fields.get("last") is True:
                    self._ordered.popleft()
                else:
                    self._ordered[0] -= 1
                found.append(message)
            case other:
                raise BadMessage(f"{other!r} is no message of a simulator")

    def _hangs(self, now: float) -> bool:
        count = self._count[0]
        if count != self._seen[0]:
            self._seen = (count, now)
        return now - self._seen[1] > self._timeouts[count == 0]

    def _failed(self, fault: str, text: str) -> None:
        self.faults[fault] += 1
        pause = self._backoff.failed()
        self._start_at = time.monotonic() + pause
        self._say(f"the simulator {text}; it is started again in {pause:g}s ({_counted(self.faults)})")

    def _kill(self) -> None:
        self._reap(0.0)

    def _reap(self, patience: float = 1.0) -> str:
        """
        End the process, with all that it has started, and say how it ended.

        :param patience: seconds in which it may end by itself
        """
        assert self._line is not None
        self._line.close()
        self._line, self._up = None, False
        self._ordered.clear()
        pid, self._pid = self._pid, 0
        until = time.monotonic() + patience
        while time.monotonic() < until and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            time.sleep(0.001)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # nobody else can have this number before it is waited for
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def _counted(faults: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in faults.items() if count)


def _close_lines(keep: int) -> None:
    """
    Close the sockets and pipes by which the worker talks to others: a copy here would keep them open.

    A peer would not see that the worker has hung up, and a thread of the worker that starts a program, which waits
    until the other end of a pipe is closed, would wait as long as the simulator lives. Events stay open: libraries
    such as gRPC start their threads again in a forked process, and abort it if what wakes those threads is gone.
    """
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are all that is needed
        number = int(name)
        if number <= 2 or number == keep:
            continue
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith(("socket:", "pipe:")):  # noqa: PTH115
                os.close(number)
