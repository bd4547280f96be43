"""The code of a job as one archive: what git would have of a folder, the same bytes for the same files."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import stat
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from lattice.errors import UsageError
from lattice.jobs.job import Code
from lattice.launching.sync.manifest import File, Link, shown
from lattice.launching.sync.snapshot import ChangedMeanwhile, Snapshot, take

CHUNK = 1 << 20
TRIES = 5
"""times that a folder is read which changes meanwhile"""
INTERVAL = 1.0
"""seconds between two words about an upload"""


@dataclass(frozen=True, slots=True)
class Archive:
    """A .tar.gz file that lives as long as :func:`packed` is not left."""

    path: str
    """where this process finds it; it has no name that could be left behind"""
    size: int
    digest: str
    """SHA-256 of its bytes"""
    heard: Callable[[int], None] = lambda count: None
    """told how many bytes :meth:`chunks` has given, each time"""

    def chunks(self) -> Iterator[bytes]:
        """Read it, whoever else does, and tell how far that is."""
        with self.open() as file:
            while data := file.read(CHUNK):
                yield data
                self.heard(len(data))

    def open(self) -> IO[bytes]:
        """Read it from its beginning, whoever else reads it."""
        return open(self.path, "rb")  # noqa: PTH123 - a Path would follow the link to a file without a name


def check(code: Code) -> None:
    """
    See that there is what the user named.

    :raises UsageError: there is not
    """
    if not code.upload or code.source.startswith("s3://"):
        return
    source = Path(code.source)
    if not source.exists():
        raise UsageError(f"there is no {code.source!r} here; with --no_upload it is taken for a path on the nodes")
    if not source.is_dir():
        if not os.access(source, os.R_OK):
            raise UsageError(f"{code.source!r} cannot be read")
        if code.script:
            raise UsageError(f"{code.source!r} is no folder: arguments of the script go after --")
        return
    if not code.script:
        raise UsageError(f"{code.source!r} is a folder: name the script in it, such as {code.source} train.py")
    if not (source / code.script).is_file():
        raise UsageError(f"there is no {code.script!r} in {code.source!r}")


@contextlib.contextmanager
def packed(code: Code, say: Callable[[str], None], scripts: Sequence[str] = ()) -> Iterator[Archive]:
    """
    Make the archive of a script, or of a folder without what git or ``.latticeignore`` ignores, and what looks like a
    secret; see :mod:`lattice.launching.sync.rules`.

    :param say: takes words for the user: what was left out
    :param scripts: that have to be in it, besides the code's own
    :raises UsageError: it is too large, changes all the time, or lacks a script
    """
    if code.source.startswith("s3://"):
        raise UsageError(
            f"{code.source} is fetched by nodes of --on aws and --on kubernetes only; download it, and name the file "
            "or folder"
        )
    with tempfile.TemporaryFile() as file:
        source = Path(code.source)
        if source.is_dir():
            _pack_folder(file, source.resolve(), [script for script in (code.script, *scripts) if script], say)
        else:
            _write(file, [_script(source)])
        digest = hashlib.sha256()
        file.seek(0)
        while data := file.read(CHUNK):
            digest.update(data)
        yield Archive(f"/proc/self/fd/{file.fileno()}", file.tell(), digest.hexdigest())


def _pack_folder(file: IO[bytes], folder: Path, scripts: Sequence[str], say: Callable[[str], None]) -> None:
    for _ in range(TRIES):
        snapshot = take(folder)
        ignored = [script for script in scripts if os.path.normpath(script) not in snapshot.manifest.entries]
        if ignored:
            raise UsageError(
                f"{ignored[0]!r} does not go along: .gitignore or .latticeignore names it, or it looks like a secret"
            )
        file.seek(0)
        file.truncate()
        try:
            _write(file, _members(snapshot))
        except ChangedMeanwhile as error:
            changed = str(error)
            continue
        if snapshot.left_out:
            say(snapshot.words())
        return
    raise UsageError(f"{changed} in {folder} changes all the time. Stop what writes it, or put it into .latticeignore")


def _members(snapshot: Snapshot) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    for path, entry in sorted(snapshot.manifest.entries.items()):
        member = tarfile.TarInfo(path)
        match entry:
            case File(digest, size, mode):
                member.size, member.mode = size, mode
                yield member, cast("IO[bytes]", _Joined(snapshot.read(digest, size, CHUNK))) if size else None
            case Link(target):
                member.type, member.linkname, member.mode = tarfile.SYMTYPE, target, 0o777
                yield member, None


def _script(path: Path) -> tuple[tarfile.TarInfo, IO[bytes]]:
    """Give a script, whatever links lead to it, under the name that the user knows."""
    member = tarfile.TarInfo(path.name)
    data = path.read_bytes()
    member.size, member.mode = len(data), stat.S_IMODE(path.stat().st_mode) & 0o777
    return member, io.BytesIO(data)


def _write(file: IO[bytes], members: Iterable[tuple[tarfile.TarInfo, IO[bytes] | None]]) -> None:
    with (
        gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for member, content in members:
            tar.addfile(member, content)


class _Joined:
    """Pieces of bytes as a file that can only be read on."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int) -> bytes:
        """Read so many bytes, fewer only at the end."""
        while len(self._rest) < size and (more := next(self._pieces, b"")):
            self._rest += more
        data, self._rest = self._rest[:size], self._rest[size:]
        if not self._rest:
            # What is wrong with a content is told at its end, which may come with its last byte.
            self._rest = next(self._pieces, b"")
        return data


class Sending:
    """Tells how much of the code is on its way, once a second."""

    def __init__(self, total: int, say: Callable[[str], None]) -> None:
        self._total = total
        self._say = say
        self._lock = threading.Lock()
        self._sent = 0
        self._told = time.monotonic()

    def sent(self, count: int) -> None:
        """Hear from any thread."""
        with self._lock:
            self._sent += count
            if time.monotonic() > self._told + INTERVAL:
                self._told = time.monotonic()
                self._say(f"sending the code: {shown(self._sent)} of {shown(self._total)}")
