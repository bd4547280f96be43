"""The console: whole lines, in order, and never so slow that training waits for somebody to read them."""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque

from lattice.core.dataclass import dataclass

LIMIT = 8 << 20
PATIENCE = 1.0
"""seconds that writers wait, in total, for a console that does not flow"""


@dataclass(frozen=True, slots=True)
class Block:
    """Some whole lines."""

    text: bytes
    lines: int
    source: str
    """the file that has these lines too, empty for the agent's own"""


class Outlet:
    """One descriptor with a bounded queue and a thread that alone may block on it."""

    def __init__(self, descriptor: int, limit: int = LIMIT, patience: float = PATIENCE) -> None:
        self._descriptor = descriptor
        self._limit = limit
        self._patience = self._patience_left = patience
        self._queue: deque[Block] = deque()
        self._size = 0
        self._writing = False
        self._dropped = 0
        self._dropped_source = ""
        self._dropping = False
        self._closing = False
        self._broken = False
        self._changed = threading.Condition()
        # A daemon: a thread that is stuck in a write to a stopped terminal must not keep the process from ending.
        self._thread = threading.Thread(target=self._run, name=f"console {descriptor}", daemon=True)
        self._thread.start()

    def put(self, block: Block) -> None:
        """
        Queue lines that are also in a file: while the queue is full, wait a little once, then leave them out.

        Whoever puts must not be stopped by a console that nobody reads, so the patience is a total: it is given anew
        only when the queue has been empty.
        """
        with self._changed:
            if self._broken:
                return
            if self._dropping and self._size <= self._limit // 2:
                self._note_dropped()
            while not self._dropping and not self._has_room(block) and not self._broken:
                began = time.monotonic()
                self._changed.wait(self._patience_left)
                self._patience_left -= time.monotonic() - began
                self._dropping = self._patience_left <= 0 and not self._has_room(block)
            if self._dropping:
                self._dropped += block.lines
                self._dropped_source = block.source
            else:
                self._append(block)

    def put_always(self, block: Block) -> None:
        """Queue lines that are nowhere else: they are never left out."""
        with self._changed:
            if not self._broken:
                self._append(block)

    def flush(self) -> None:
        """Wait until all that is queued has been written."""
        with self._changed:
            self._changed.wait_for(self._is_done)

    def close(self, within: float) -> None:
        """
        Write what is queued; when that takes too long, give up what is also in files and write the rest.

        :param within: seconds
        """
        deadline = time.monotonic() + within
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            if not self._changed.wait_for(self._is_done, within * 0.8):
                for block in [block for block in self._queue if block.source]:
                    self._queue.remove(block)
                    self._size -= len(block.text)
                    self._dropped += block.lines
                    self._dropped_source = block.source
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _is_done(self) -> bool:
        return self._broken or not (self._queue or self._writing or self._dropped)

    def _has_room(self, block: Block) -> bool:
        return not self._queue or self._size + len(block.text) <= self._limit

    def _append(self, block: Block) -> None:
        self._queue.append(block)
        self._size += len(block.text)
        self._changed.notify_all()

    def _note_dropped(self) -> None:
        text = f"[lattice] {self._dropped} lines not shown here, see {self._dropped_source}\n"
        self._dropping = False
        self._dropped = 0
        self._append(Block(text.encode(errors="backslashreplace"), 1, ""))

    def _run(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                if not self._queue:
                    if self._dropped:
                        self._note_dropped()
                    self._patience_left = self._patience
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._queue or self._closing)
                if not self._queue:
                    if self._dropped:
                        continue
                    return
                block = self._queue.popleft()
                self._size -= len(block.text)
                self._writing = True
                self._changed.notify_all()
            try:
                self._write(block.text)
            except OSError:
                # The reader is gone (EPIPE), or the terminal is (EIO). The files go on.
                with self._changed:
                    self._broken = True
                    self._writing = False
                    self._queue.clear()
                    self._size = 0
                    self._changed.notify_all()
                return

    def _write(self, text: bytes) -> None:
        view = memoryview(text)
        while view:
            try:
                view = view[os.write(self._descriptor, view) :]
            except BlockingIOError:  # somebody who shares the terminal made it non-blocking
                poll = select.poll()
                poll.register(self._descriptor, select.POLLOUT)
                poll.poll()


class Console:
    """Standard output and standard error of the agent. If both lead to the same place, one thread writes to both."""

    def __init__(self, stdout: int = 1, stderr: int = 2, limit: int = LIMIT, patience: float = PATIENCE) -> None:
        """
        Take over two descriptors, which stay the caller's to close.

        :param stdout: where workers' standard output goes
        :param stderr: where workers' standard error and the agent's own words go
        :param limit: bytes that are kept for a console that does not flow
        :param patience: seconds that writers wait for such a console, in total
        """
        self._outlets = {"stdout": Outlet(stdout, limit, patience)}
        same = _same_place(stdout, stderr)
        self._outlets["stderr"] = self._outlets["stdout"] if same else Outlet(stderr, limit, patience)

    def show(self, stream: str, text: bytes, lines: int, source: str) -> None:
        """
        Show lines of a worker, or leave them out if the console does not flow.

        :param stream: ``stdout`` or ``stderr``
        :param text: whole lines
        :param lines: how many
        :param source: the file where they can be read too
        """
        self._outlets[stream].put(Block(text, lines, source))

    def say(self, text: str, prefix: str = "lattice: ", *, routine: bool = False) -> None:
        """
        Show words of the agent itself, on standard error, in order with what was shown before.

        :param text: one or more lines
        :param prefix: what each line begins with
        :param routine: whether it is what always happens, or is told elsewhere too; shown here all the same
        """
        lines = text.splitlines() or [""]
        whole = "".join(f"{prefix}{line}".rstrip() + "\n" for line in lines)
        self._outlets["stderr"].put_always(Block(whole.encode(errors="backslashreplace"), len(lines), ""))

    def close(self, within: float = 5.0) -> None:
        """
        Write what is left.

        :param within: seconds after which what was not written is given up
        """
        deadline = time.monotonic() + within
        for outlet in dict.fromkeys(self._outlets.values()):
            outlet.close(max(0.1, deadline - time.monotonic()))


def _same_place(one: int, other: int) -> bool:
    try:
        return os.path.sameopenfile(one, other)
    except OSError:  # closed by whoever started the agent
        return False
