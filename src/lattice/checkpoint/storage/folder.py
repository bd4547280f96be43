"""A folder, perhaps of a network file system (NFS, EFS, Lustre) that many hosts write to."""

from __future__ import annotations

import mmap
import os
import shutil
from pathlib import Path

CHUNK = 64 << 20
"""bytes written at a time"""


class Folder:
    """Files are written beside their place, and moved there when they are on the disk."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def names(self, folder: str) -> list[str]:
        """List what is directly in a folder."""
        try:
            return [name for name in os.listdir(self._root / folder) if not name.startswith(".new-")]  # noqa: PTH208
        except FileNotFoundError:
            return []

    def read(self, name: str) -> memoryview:
        """Give what is in a file."""
        with (self._root / name).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b"")

    def write(self, name: str, data: memoryview) -> None:
        """Write a file, instead of one of that name."""
        path = self._root / name
        fresh = self._written(path, data)
        try:
            os.replace(fresh, path)  # noqa: PTH105 - the same, and nothing to be made
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        _sync(path.parent)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless there is one."""
        path = self._root / name
        fresh = self._written(path, memoryview(data))
        try:
            os.link(fresh, path)
        except FileExistsError:
            return False
        finally:
            fresh.unlink(missing_ok=True)
        _sync(path.parent)
        return True

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        path = self._root / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def _written(self, path: Path, data: memoryview) -> Path:
        """Have the data on the disk, under another name."""
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f".new-{os.urandom(6).hex()}-{path.name}")
        try:
            with fresh.open("xb", buffering=0) as file:
                while data:
                    data = data[file.write(data[:CHUNK]) :]
                os.fsync(file.fileno())
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        return fresh


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
