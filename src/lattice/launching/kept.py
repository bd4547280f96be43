"""The last of what a launch logged, in bounded memory, for whoever asks: what was let go is counted."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

from lattice.launching.handlers import Origin
from lattice.launching.records import from_line

LIMIT = 8 << 20
OVERHEAD = 200
"""bytes that an entry takes besides its text"""
FORMAT = logging.Formatter("%(levelname)s %(name)s: %(message)s")


class LogLine(NamedTuple):
    """One line of a launch's log."""

    hostname: str
    """as it was given to the launch"""
    local_rank: int | None
    """of the worker; None for the agent itself"""
    stream: Literal["stdout", "stderr", "logging"]
    text: str
    """without its end; a record of ``logging`` may have several lines"""


@dataclass(frozen=True, slots=True)
class Entry:
    """Whole lines as they came: not split, as most are never asked for."""

    number: int
    origin: Origin
    stream: str
    whole: bytes
    before: int
    """lines of this origin that came before"""
    lines: int

    def split(self) -> Iterator[LogLine]:
        """Give each line."""
        hostname, local_rank = self.origin.hostname, self.origin.local_rank
        for line in self.whole[:-1].split(b"\n"):
            if self.stream == "records":
                yield LogLine(hostname, local_rank, "logging", _formatted(line))
            else:
                text = line.decode(errors="backslashreplace")
                yield LogLine(hostname, local_rank, "stderr" if self.stream == "stderr" else "stdout", text)


class Kept:
    """Takes lines from one thread, and gives them to any other."""

    def __init__(self, limit: int = LIMIT) -> None:
        """
        Begin without any.

        :param limit: bytes that are kept
        """
        self._limit = limit
        self._entries: deque[Entry] = deque()
        self._size = 0
        self._next = 0
        self._ended = False
        self._totals: dict[Origin, int] = {}
        self._changed = threading.Condition()

    def add(self, origin: Origin, stream: str, whole: bytes, lines: int) -> None:
        """Keep some whole lines, of which there are so many, and let the oldest go if there is no room."""
        total = self._totals.get(origin, 0) + lines
        if len(whole) > self._limit:
            whole = whole[whole.find(b"\n", len(whole) - self._limit - 1) + 1 :]
            lines = whole.count(b"\n")
        entry = Entry(self._next, origin, stream, whole, total - lines, lines)
        with self._changed:
            self._totals[origin] = total
            if not whole:  # one line, and a very long one
                return
            self._next += 1
            self._entries.append(entry)
            self._size += len(whole) + OVERHEAD
            while self._size > self._limit and len(self._entries) > 1:
                self._size -= len(self._entries.popleft().whole) + OVERHEAD
            self._changed.notify_all()

    def end(self) -> None:
        """Let whoever follows know that nothing will come any more."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def after(self, number: int, *, wait: bool) -> list[Entry]:
        """
        Give what came after an entry and is still there.

        :param number: of that entry; -1 for all
        :param wait: whether to wait until there is something
        :return: nothing if there is none, or will be none
        """
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._ended or self._next > number + 1)
            first = self._next - len(self._entries)
            return list(islice(self._entries, max(number + 1 - first, 0), None))

    def totals(self) -> dict[Origin, int]:
        """Count the lines of each origin that there ever were."""
        with self._changed:
            return dict(self._totals)


class LogLines(Iterator[LogLine]):
    """Lines of a launch, in the order in which they came."""

    def __init__(self, kept: Kept, takes: Callable[[Origin], bool], *, follow: bool) -> None:
        self.dropped = 0
        """lines that could not be given: they were too old when this began, or it was read too slowly"""
        self._seen: dict[Origin, int] = {}
        self._lines = self._read(kept, takes, follow)

    def __next__(self) -> LogLine:
        return next(self._lines)

    def _read(self, kept: Kept, takes: Callable[[Origin], bool], follow: bool) -> Iterator[LogLine]:
        last = -1
        while entries := kept.after(last, wait=follow):
            last = entries[-1].number
            for entry in entries:
                if takes(entry.origin):
                    self._count(entry.origin, entry.before, entry.lines)
                    yield from entry.split()
            if not follow:
                return
        for origin, total in kept.totals().items():
            if takes(origin):
                self._count(origin, total, 0)

    def _count(self, origin: Origin, before: int, lines: int) -> None:
        self.dropped += before - self._seen.get(origin, 0)
        self._seen[origin] = before + lines


def _formatted(line: bytes) -> str:
    try:
        return FORMAT.format(from_line(line))
    except ValueError:
        return line.decode(errors="backslashreplace")
