"""Which control groups bound the memory of this process, and the files in which they say so, of both versions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from lattice.core.dataclass import dataclass

ROOT = "/sys/fs/cgroup"


@dataclass(frozen=True, slots=True)
class FileNames:
    """How a version of the interface calls things."""

    limit: str
    usage: str
    events: str
    cached: str


NAMES = {
    1: FileNames("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control", "total_inactive_file"),
    2: FileNames("memory.max", "memory.current", "memory.events", "inactive_file"),
}


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A folder of the kernel's."""

    folder: str
    version: int

    def limit(self) -> int | None:
        """Give the most bytes that all of its processes may use; None if nothing says."""
        return number(read(f"{self.folder}/{NAMES[self.version].limit}"))

    def used(self) -> int | None:
        """Give the bytes that its processes use and the kernel could not take back at once; None if nothing says."""
        usage = number(read(f"{self.folder}/{NAMES[self.version].usage}"))
        cached = field(read(f"{self.folder}/memory.stat"), NAMES[self.version].cached)
        return None if usage is None else max(usage - (cached or 0), 0)

    def kills(self) -> int | None:
        """Tell how many of its processes were killed because memory ran out; None if nothing says."""
        return field(read(f"{self.folder}/{NAMES[self.version].events}"), "oom_kill")


def memory_groups() -> tuple[MemoryGroup, ...]:
    """Give the groups of this process, the innermost first."""
    possible = groups_of(read("/proc/self/cgroup").splitlines())
    return tuple(group for group in possible if os.path.isdir(group.folder))  # noqa: PTH112


def groups_of(listing: Iterable[str]) -> Iterator[MemoryGroup]:
    """
    Tell where the groups may lie that a process is in, with all that these lie in.

    In a container the path may be the host's, of which only the end is there: the folder that is then found is the
    container's own.

    :param listing: the lines of ``/proc/PID/cgroup``
    """
    for line in listing:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base, version = (f"{ROOT}/memory", 1) if controllers else (ROOT, 2)
        parts = [part for part in path.split("/") if part]
        for length in range(len(parts), -1, -1):
            yield MemoryGroup("/".join((base, *parts[:length])), version)


def number(text: str) -> int | None:
    """Give the number that a file holds; None if it holds a word, such as ``max``."""
    return int(text) if text.strip().isdigit() else None


def field(text: str, name: str) -> int | None:
    """Give the number behind a name in lines of ``name number``."""
    found = (line.split() for line in text.splitlines())
    return next((number(words[1]) for words in found if len(words) == 2 and words[0] == name), None)


def read(path: str) -> str:
    """Give what a file of the kernel's says; nothing if there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - agents import no pathlib for this
            return file.read()
    except OSError:
        return ""
