"""Reads a project folder: what is in it, with digests; those of files that did not change are remembered."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from lattice.core.dataclass import dataclass
from lattice.launching.sync.listing import list_files
from lattice.launching.sync.manifest import Entry, File, Link, Manifest, hasher, refuse_too_much
from lattice.launching.sync.places import places
from lattice.launching.sync.rules import choose

SETTLED = 2_000_000_000
"""nanoseconds since its last change after which a file's times tell of the next one, on any file system"""
CHUNK = 1 << 20
TRIES = 20
PAUSE = 0.05
"""seconds that a file has which became shorter while it was read"""
Mark = tuple[int, int, int, int]
"""size, time of change of content and of anything, inode"""
NAMED = 5
"""how many of those that are left out are named"""


class ChangedMeanwhile(Exception):
    """A file is no longer what it was when its digest was taken."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A project at one moment."""

    root: Path
    manifest: Manifest
    sources: Mapping[str, str]
    """by digest: a file with that content"""
    left_out: Mapping[str, str]
    """what is not sent although it is not ignored, and why"""

    def read(self, digest: str, size: int, chunk: int) -> Iterator[bytes]:
        """
        Read a content.

        :param digest: of it
        :param size: of it: what was appended to the file since does not count
        :param chunk: the most bytes at a time
        :raises ChangedMeanwhile: the file has another content now; found out at the end
        """
        path = self.sources[digest]
        hashed = hasher()
        try:
            with open(self.root / path, "rb", opener=_opener) as file:
                while size and (data := file.read(min(chunk, size))):
                    hashed.update(data)
                    size -= len(data)
                    yield data
        except OSError as error:
            raise ChangedMeanwhile(path) from error
        if hashed.hexdigest() != digest:
            raise ChangedMeanwhile(path)

    def words(self) -> str:
        """Say what is left out."""
        named = [f"{path} ({reason})" for path, reason in sorted(self.left_out.items())[:NAMED]]
        more = len(self.left_out) - len(named)
        return f"not sent of {self.root}: {', '.join(named)}" + (f" and {more} more" if more else "")


def take(root: Path, without: Iterable[str] = (), memory: Path | None = None) -> Snapshot:
    """
    Read a project.

    :param root: its folder
    :param without: paths in it, or elsewhere, that are not sent: where the launcher itself writes
    :param memory: a file in which digests are remembered
    :raises UsageError: it is more than is sent
    """
    excluded = tuple(places(str(root), without).values())
    chosen, secret = choose(list_files(root))
    left_out = dict.fromkeys(secret, "looks like a secret")
    states: dict[str, os.stat_result] = {}
    for path in chosen:
        if any(path == one or path.startswith(f"{one}/") for one in excluded):
            continue
        try:
            states[path] = os.lstat(root / path)
        except FileNotFoundError:
            continue  # removed, and git was not told
        except OSError as error:
            left_out[path] = error.strerror or str(error)
    files = {path: state.st_size for path, state in states.items() if stat.S_ISREG(state.st_mode)}
    refuse_too_much(str(root), files)
    digests = _Digests(memory, str(root))
    entries: dict[str, Entry] = {}
    for path, state in states.items():
        try:
            if path in files:
                entries[path] = digests.file(root / path, path, state)
            elif stat.S_ISLNK(state.st_mode):
                entries[path] = Link(_target(root, path))
            elif stat.S_ISDIR(state.st_mode):
                left_out[path] = "cannot be listed"
        except FileNotFoundError:
            continue
        except OSError as error:
            left_out[path] = error.strerror or str(error)
    digests.save()
    sources = {entry.digest: path for path, entry in entries.items() if isinstance(entry, File)}
    return Snapshot(root, Manifest(root.name, entries), sources, left_out)


class _Digests:
    """The digests of one project's files."""

    def __init__(self, memory: Path | None, root: str) -> None:
        self._memory = memory
        self._root = root
        self._known: dict[str, tuple[Mark, str]] = {}
        self._seen: dict[str, tuple[Mark, str]] = {}
        try:
            told = json.loads(memory.read_bytes()) if memory is not None else {}
            if told.get("root") == root:
                self._known = {path: ((*mark,), str(digest)) for path, (mark, digest) in told["files"].items()}
        except (OSError, ValueError, AttributeError, TypeError, KeyError):
            pass  # there is none, or it is damaged: it will be written anew

    def file(self, full: Path, path: str, state: os.stat_result) -> File:
        mark, digest = self._known.get(path, (None, ""))
        for _ in range(TRIES):
            if mark == _mark(state):
                break
            with open(full, "rb", opener=_opener) as file:
                now = time.time_ns()
                state = os.fstat(file.fileno())
                # Not more than was there at first: a log that grows is sent as far as it was written.
                digest, left = _digest(file, state.st_size)
            mark = None
            if not left:
                if max(state.st_mtime_ns, state.st_ctime_ns) < now - SETTLED:
                    mark = _mark(state)
                break
            time.sleep(PAUSE)  # somebody writes it anew
        else:
            raise OSError(errno.EBUSY, "changes all the time", str(full))
        if mark is not None:
            self._seen[path] = mark, digest
        return File(digest, state.st_size, stat.S_IMODE(state.st_mode) & 0o777)

    def save(self) -> None:
        """Remember them for the next time; a folder that cannot be written is no reason to fail."""
        if self._memory is None or self._seen == self._known:
            return
        temporary = self._memory.with_name(f"{self._memory.name}.{os.getpid()}.{time.monotonic_ns()}")
        try:
            self._memory.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary.write_text(json.dumps({"root": self._root, "files": self._seen}))
            temporary.replace(self._memory)
        except OSError:
            temporary.unlink(missing_ok=True)


def _digest(file: BinaryIO, size: int) -> tuple[str, int]:
    """Digest the beginning of a file; give how much of it was not there."""
    hashed = hasher()
    while size and (data := file.read(min(CHUNK, size))):
        hashed.update(data)
        size -= len(data)
    return hashed.hexdigest(), size


def _mark(state: os.stat_result) -> Mark:
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino


def _target(root: Path, path: str) -> str:
    """Read a link; one that leads to another place of the project by an absolute path does so there too."""
    target = os.readlink(root / path)  # noqa: PTH115 - its bytes as they are
    if os.path.isabs(target):  # noqa: PTH117
        folder = (root / path).parent
        inside = places(str(root), (target,)).get(target)
        if inside is not None:
            return os.path.relpath(root / inside, folder)
    return target


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
