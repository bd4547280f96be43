"""Contents of files on a host, by digest: written whole or not at all, and looked at again before they are used."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from lattice.launching.sync.manifest import DIGEST_SIZE, hasher

KEPT = 14 * 86400.0
"""seconds that a content is kept after its last use"""
MOST_BYTES = 5_000_000_000
"""of all contents; those that were not used for the longest time go first"""
IN_USE = 3600.0
"""seconds in which a content may belong to a launch that is under way"""
CHUNK = 1 << 20


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Tell where contents and digests are kept on this host."""
    named = environ.get("XDG_CACHE_HOME", "")
    base = Path(named) if named.startswith("/") else Path(os.path.expanduser("~"), ".cache")  # noqa: PTH111
    return base / "lattice" / "sync"


class Contents:
    """
    Contents in a folder that any number of launches use at the same time.

    A content is written under a name of its own and renamed when it is complete and right. It is never linked to, only
    copied: whoever writes into a file of a project can do no harm here.
    """

    def __init__(self, folder: Path) -> None:
        """
        Open the store, or make it.

        :raises OSError: it cannot be made here
        """
        self._folder = folder / "contents"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.identity = self._identify(folder / "identity")
        """what two agents have in common that use the same folder, on one host or through a shared file system"""

    def has(self, digest: str, size: int) -> bool:
        """Tell whether a content seems to be here, and keep it for a while if so."""
        path = self._path(digest)
        try:
            there = path.stat().st_size == size
            if there:
                os.utime(path)
        except OSError:
            return False
        return there

    def writer(self, digest: str) -> Writer:
        """Begin to write a content."""
        path = self._path(digest)
        path.parent.mkdir(exist_ok=True, mode=0o700)
        return Writer(path, digest)

    def copy(self, digest: str, size: int, target: IO[bytes]) -> bool:
        """
        Copy a content, and tell whether it was right; one that is not is removed.

        :param digest: of it
        :param size: of it
        :param target: gets it
        """
        path = self._path(digest)
        hashed = hasher()
        try:
            with path.open("rb") as source:
                while data := _read(source):
                    hashed.update(data)
                    target.write(data)
        except _Unreadable:
            pass
        except FileNotFoundError:
            return False
        if hashed.hexdigest() != digest:
            path.unlink(missing_ok=True)
            return False
        return True

    def prune(self, now: float | None = None, most: int = MOST_BYTES) -> None:
        """
        Remove what was not used for long, and what is too much.

        :param now: seconds since the epoch
        :param most: bytes that may be kept
        """
        now = time.time() if now is None else now
        kept = []
        for path in self._folder.glob("*/*"):
            try:
                state = path.stat()
                if state.st_mtime < now - KEPT or (path.suffix and state.st_mtime < now - IN_USE):
                    path.unlink()
                else:
                    kept.append((state.st_mtime, state.st_size, path))
            except OSError:
                continue  # somebody else did the same
        total = sum(size for _, size, _ in kept)
        for used, size, path in sorted(kept):
            if total <= most or used > now - IN_USE:
                break
            path.unlink(missing_ok=True)
            total -= size

    def _path(self, digest: str) -> Path:
        assert len(digest) == 2 * DIGEST_SIZE and digest.isalnum(), digest
        return self._folder / digest[:2] / digest

    def _identify(self, path: Path) -> str:
        mine = secrets.token_hex(16)
        temporary = path.with_name(f"identity.{mine}")
        try:
            return path.read_text()
        except FileNotFoundError:
            pass
        try:
            temporary.write_text(mine)
            os.link(temporary, path)  # the first wins
        except FileExistsError:
            return path.read_text()
        except OSError:
            pass  # without links: then nobody knows that others use it too
        finally:
            temporary.unlink(missing_ok=True)
        return mine


class Writer:
    """A content on its way into the store."""

    def __init__(self, path: Path, digest: str) -> None:
        self.digest = digest
        self.size = 0
        self._path = path
        self._temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        self._file = self._temporary.open("xb")
        self._hashed = hasher()

    def write(self, data: bytes | memoryview) -> None:
        """Add to it."""
        self._file.write(data)
        self._hashed.update(data)
        self.size += len(data)

    def commit(self) -> None:
        """Put it into the store, if it is what it should be; whoever looks for it otherwise misses it still."""
        try:
            self._file.close()  # may be what finds the disk full
            if self._hashed.hexdigest() == self.digest:
                self._temporary.replace(self._path)
        finally:
            self.discard()

    def discard(self) -> None:
        """Forget it."""
        try:
            self._file.close()
        except OSError:
            pass
        self._temporary.unlink(missing_ok=True)


class _Unreadable(Exception):
    pass


def _read(source: IO[bytes]) -> bytes:
    try:
        return source.read(CHUNK)
    except OSError as error:  # a bad block: as wrong as any other content
        raise _Unreadable from error
