"""Anything that fsspec knows: gs://, abfs://, hdfs://, memory:// and many more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lattice.errors import UsageError


class Other:
    """Files of an fsspec file system."""

    def __init__(self, where: str) -> None:
        """
        Open a file system.

        :param where: its URL
        :raises UsageError: fsspec, or what it needs for this scheme, is not installed
        """
        try:
            import fsspec
        except ImportError:
            raise UsageError(f"checkpoints at {where} need fsspec: pip install fsspec") from None
        try:
            self._fs: Any
            self._fs, root = fsspec.core.url_to_fs(where)
        except (ImportError, ValueError) as error:
            raise UsageError(f"checkpoints at {where}: {error}") from None
        self._root = root.rstrip("/")

    def names(self, folder: str) -> list[str]:
        """List what is directly in a folder."""
        try:
            with self._errors(folder):
                self._fs.invalidate_cache()  # others write here as well
                return [path.rstrip("/").rpartition("/")[2] for path in self._fs.ls(self._path(folder), detail=False)]
        except FileNotFoundError:
            return []

    def read(self, name: str) -> memoryview:
        """Give what is in a file."""
        with self._errors(name):
            return memoryview(self._fs.cat_file(self._path(name)))

    def write(self, name: str, data: memoryview) -> None:
        """Write a file; most file systems show it when it is complete, and its digest tells otherwise."""
        with self._errors(name):
            self._fs.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)
            with self._fs.open(self._path(name), "wb") as file:
                file.write(data)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless there is one; as atomic as the file system is."""
        try:
            with self._errors(name):
                self._fs.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)
                self._fs.pipe_file(self._path(name), data, mode="create")
        except FileExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it."""
        try:
            with self._errors(name):
                self._fs.rm(self._path(name), recursive=True)
        except FileNotFoundError:
            pass

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError:
            raise
        except Exception as error:  # each file system has its own
            raise OSError(f"{self._path(name)}: {error}") from error
