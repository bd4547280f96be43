"""Where results go: wherever checkpoints can, with files that grow. Writing the same thing twice does no harm."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from lattice.checkpoint.storage import Storage, open_storage
from lattice.checkpoint.storage import place as spelled


class Place:
    """Keeps files by name."""

    def __init__(self, where: str | PathLike[str]) -> None:
        """
        Find it.

        :param where: a folder, ``s3://bucket/prefix``, or a URL that fsspec knows
        :raises UsageError: it cannot be used; it says what to install
        """
        text = spelled(where)
        self._storage: Storage = open_storage(text)
        self._folder = None if "://" in text else Path(text)
        self._grown: dict[str, bytes] = {}

    def write(self, name: str, data: bytes) -> None:
        """Keep a file, all of it or nothing, in place of an earlier one."""
        self._storage.write(name, memoryview(data))

    def append(self, name: str, data: bytes) -> None:
        """Add to a file; but for a folder that means to write all of it anew."""
        if self._folder is not None:
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.write(data)
            return
        if name not in self._grown:
            try:
                self._grown[name] = self.read(name)
            except FileNotFoundError:
                self._grown[name] = b""
        whole = self._grown[name] + data
        self.write(name, whole)
        self._grown[name] = whole

    def read(self, name: str) -> bytes:
        """
        Give a file.

        :raises FileNotFoundError: there is none
        """
        return bytes(self._storage.read(name))

    def names(self, folder: str = "") -> list[str]:
        """List what is directly in a folder, in order, each with the folder before it."""
        before = f"{folder}/" if folder else ""
        return sorted(before + name for name in self._storage.names(folder))
