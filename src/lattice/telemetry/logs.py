"""The log pump: everything workers write reaches their files and tails; one that floods does not slow the others."""

from __future__ import annotations

import fcntl
import os
import select
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable

from lattice.core.dataclass import dataclass
from lattice.telemetry.console import Console
from lattice.telemetry.lines import Lines
from lattice.telemetry.logfile import RETRY_INTERVAL, LogFile

PIPE_SIZE = 1 << 20
READ_SIZE = 256 << 10
GATHERING = 0.01
"""seconds in which pipes may fill: to be woken for each line costs a worker more than to write it"""
TAIL_SIZE = 64 << 10
# More than a pipe can hold: a child that a worker left behind may write for ever.
DRAIN_LIMIT = 8 << 20
PROGRESS_INTERVAL = 2.0


@dataclass(frozen=True, slots=True)
class Tails:
    """The last bytes that a worker wrote."""

    stdout: bytes = b""
    stderr: bytes = b""
    complete: bool = True
    """whether everything that was in the pipes has been read"""


def gathering(capacity: int, length: int) -> float:
    """
    Tell how long a pipe may be left alone: never so long that its worker would have to wait.

    :param capacity: bytes that the pipe can hold
    :param length: how many there were just now
    :return: seconds; the shorter the smaller the pipe is, none after it was filled by a quarter or more
    """
    return 0.0 if length >= min(capacity // 4, READ_SIZE) else GATHERING * min(capacity / PIPE_SIZE, 1.0)


def open_pipe() -> tuple[int, int]:
    """
    Make a pipe for a worker's output, as large as the system allows.

    :return: the end for the pump, and the end for the worker
    """
    read, write = os.pipe()
    try:
        fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
    except OSError:
        pass  # the user's share of pipe memory is used up: a smaller one does as well
    return read, write


class LogPump:
    """One thread that reads the pipes of all workers of a node."""

    def __init__(
        self,
        console: Console,
        progress_interval: float = PROGRESS_INTERVAL,
        retry_interval: float = RETRY_INTERVAL,
    ) -> None:
        """
        Start the thread.

        :param console: where lines are shown
        :param progress_interval: seconds between two states of a progress bar that are shown
        :param retry_interval: seconds between two tries to write a file that could not be written
        """
        self._console = console
        self._progress_interval = progress_interval
        self._progress_at = 0.0
        self._retry_interval = retry_interval
        self._streams: dict[tuple[Hashable, str], _Stream] = {}
        self._failing: set[str] = set()
        self._lost: dict[Hashable, int] = {}
        self._requests: deque[Callable[[], None]] = deque()
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._bell = select.poll()
        self._bell.register(self._wake, select.POLLIN)
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="log pump", daemon=True)
        self._thread.start()

    def add(self, worker: Hashable, stream: str, descriptor: int, path: str, prefix: str | None) -> None:
        """
        Read a pipe until its end.

        :param worker: names the worker in later calls; a new name for each process
        :param stream: ``stdout`` or ``stderr``
        :param descriptor: the pipe's read end, which the pump closes
        :param path: the file to append to; its folder is created
        :param prefix: what its lines begin with on the console, None to show none
        """
        os.set_blocking(descriptor, False)
        lines = None if prefix is None else Lines(prefix.encode(errors="backslashreplace"))

        def add() -> None:
            self._add(_Stream(worker, stream, descriptor, LogFile(path, self._retry_interval), lines))

        self._request(add)

    def drain(self, worker: Hashable, within: float = 5.0) -> Tails:
        """
        Read all that is in a worker's pipes now; to be called when it has ended.

        :param worker: its name
        :param within: seconds after which to go on with what there is
        :return: the last 64 KB of each stream
        """
        done = threading.Event()

        def drain() -> None:
            for stream in self._of(worker):
                self._drain(stream)
            done.set()

        self._request(drain)
        complete = done.wait(within)
        tails = {stream.name: bytes(stream.tail[-TAIL_SIZE:]) for stream in self._of(worker)}
        return Tails(complete=complete, **tails)

    def forget(self, worker: Hashable) -> None:
        """Read what is in a worker's pipes, then close them, even if somebody else still holds the other ends."""

        def forget() -> None:
            for stream in self._of(worker):
                self._end(stream)

        self._request(forget)

    @property
    def lost_bytes(self) -> dict[Hashable, int]:
        """How many bytes of each worker are missing from its files; empty if all is well."""
        return dict(self._lost)

    def close(self, within: float = 5.0) -> None:
        """
        Read what is in all pipes, close them and end the thread.

        :param within: seconds after which it is left behind
        """
        if self._ending:
            return

        def end() -> None:
            for stream in list(self._streams.values()):
                self._end(stream)
            self._ending = True

        self._request(end)
        self._thread.join(within)
        if not self._thread.is_alive():
            self._selector.close()
            os.close(self._wake)

    # Everything below runs in the pump's thread, except for _request and _of.

    def _request(self, action: Callable[[], None]) -> None:
        self._requests.append(action)
        os.eventfd_write(self._wake, 1)

    def _of(self, worker: Hashable) -> list[_Stream]:
        return [stream for (name, _), stream in list(self._streams.items()) if name == worker]

    def _run(self) -> None:
        while not self._ending:
            has_progress = any(stream.has_progress for stream in self._streams.values())
            pauses = []
            for key, _ in self._selector.select(self._progress_interval if has_progress else None):
                if key.fd == self._wake:
                    os.eventfd_read(self._wake)
                # One bounded read for each pipe that has something: all get the same share.
                elif length := self._read(key.data):
                    pauses.append(gathering(key.data.capacity, length))
            while self._requests:
                self._requests.popleft()()
            if has_progress and time.monotonic() >= self._progress_at:
                self._progress_at = time.monotonic() + self._progress_interval
                for stream in self._streams.values():
                    if stream.lines:
                        self._show(stream, *stream.lines.progress())
            if pauses and not self._ending:
                self._bell.poll(min(pauses) * 1000)  # ends when somebody wants something

    def _add(self, stream: _Stream) -> None:
        self._streams[stream.worker, stream.name] = stream
        self._selector.register(stream.descriptor, selectors.EVENT_READ, stream)
        self._account(stream)

    def _read(self, stream: _Stream) -> int:
        """Read once; gives how much there was, 0 for nothing now or ever."""
        if stream.descriptor < 0:
            return 0
        try:
            chunk = os.read(stream.descriptor, READ_SIZE)
        except BlockingIOError:
            return 0
        except OSError:
            chunk = b""
        if not chunk:
            self._close_pipe(stream)
            return 0
        stream.file.write(chunk)
        self._account(stream)
        stream.tail += chunk
        if len(stream.tail) > 4 * TAIL_SIZE:
            del stream.tail[:-TAIL_SIZE]
        if stream.lines:
            self._show(stream, *stream.lines.feed(chunk))
        return len(chunk)

    def _drain(self, stream: _Stream) -> None:
        total = 0
        while total < DRAIN_LIMIT and (length := self._read(stream)):
            total += length

    def _end(self, stream: _Stream) -> None:
        self._drain(stream)
        self._close_pipe(stream)
        stream.file.close()
        self._failing.discard(stream.file.path)
        del self._streams[stream.worker, stream.name]

    def _close_pipe(self, stream: _Stream) -> None:
        if stream.descriptor >= 0:
            self._selector.unregister(stream.descriptor)
            os.close(stream.descriptor)
            stream.descriptor = -1
            if stream.lines:
                self._show(stream, *stream.lines.flush())

    def _show(self, stream: _Stream, text: bytes, lines: int) -> None:
        if lines:
            self._console.show(stream.name, text, lines, stream.file.path)

    def _account(self, stream: _Stream) -> None:
        """Say once that files can't be written, and once for each that can be again."""
        file = stream.file
        if file.lost > stream.lost:
            self._lost[stream.worker] = self._lost.get(stream.worker, 0) + file.lost - stream.lost
            stream.lost = file.lost
        if file.failure and file.path not in self._failing:
            if not self._failing:
                self._console.say(
                    f"cannot write {file.path}: {file.failure}. Training goes on, but output will be missing from log "
                    "files. Put that right, or choose another folder with --log_dir (LATTICE_LOG_DIR)."
                )
            self._failing.add(file.path)
        elif not file.failure and file.path in self._failing:
            self._failing.remove(file.path)
            self._console.say(f"{file.path} can be written again; {file.lost} bytes are missing from it.")


class _Stream:
    """One pipe and where its bytes go."""

    def __init__(self, worker: Hashable, name: str, descriptor: int, file: LogFile, lines: Lines | None) -> None:
        self.worker = worker
        self.name = name
        self.descriptor = descriptor
        self.capacity = fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ)
        self.file = file
        self.lines = lines
        self.tail = bytearray()
        self.lost = 0

    @property
    def has_progress(self) -> bool:
        return self.lines is not None and self.lines.has_progress
