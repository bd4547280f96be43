"""Where a checkpoint is read from: this node's memory if it is there, else the storage, every byte checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lattice.checkpoint.history import History
from lattice.checkpoint.memory import Kept
from lattice.checkpoint.shelf import digest
from lattice.checkpoint.storage import Storage
from lattice.errors import LatticeError


class Damaged(LatticeError):
    """A file of a checkpoint is not what was written."""


class Source:
    """One checkpoint."""

    def __init__(self, storage: Storage, folder: str, files: Mapping[str, tuple[int, str]], kept: list[Kept]) -> None:
        """
        Take what is known of it.

        :param files: size and digest by name; none if it is in memory only
        :param kept: what this node holds of it
        """
        self._storage = storage
        self._folder = folder
        self._files = files
        self._kept = kept
        self._read: dict[str, memoryview] = {name: data for part in kept for name, data in part.files.items()}
        self.from_memory = set(self._read)
        """the files that need not be read from the storage"""

    @property
    def names(self) -> list[str]:
        """List the files."""
        return sorted({*self._files, *self._read})

    def read(self, name: str) -> memoryview:
        """
        Give what is in a file.

        :raises Damaged: it is missing, or not what was written
        :raises OSError: the storage does not answer
        """
        if name not in self._read:
            size, expected = self._files.get(name, (-1, ""))
            path = f"{self._folder}/{name}"
            try:
                data = self._storage.read(path)
            except FileNotFoundError:
                raise Damaged(f"{path} is missing") from None
            if len(data) != size:
                raise Damaged(f"{path} has {len(data)} bytes, not {size}")
            if digest(data) != expected:
                raise Damaged(f"{path} has changed: its SHA-256 is another")
            self._read[name] = data
        return self._read[name]

    def close(self) -> None:
        """Let go of it."""
        self._read = {}
        for part in self._kept:
            part.close()


def in_memory(held: list[dict[str, Any]], now: History) -> dict[str, Any] | None:
    """
    Choose what to go on from without any storage: the newest checkpoint of which this node holds all parts.

    :param held: what it holds, the newest last
    :param now: the log, as far as it is known
    :return: None if the storage has a newer one, or somebody else has taken over
    """
    for found in reversed(held):
        if set(found["ranks"]) >= set(range(found["world"])):
            known = [entry.folder for entry in now.saved]
            if found["folder"] in known:
                return found if known[0] == found["folder"] else None
            last = now.opening
            over = last is not None and last.run == found["run"] and last.round > found["round"]
            mine = last is None or last.token == found["token"]
            unclaimed = not over and not found["opened"] and not found["refused"]
            # Whoever opened last to go on from it may have died before it could tell the keeper so.
            died = (
                last is not None
                and last.source == found["folder"]
                and all(one.token != last.token for one in now.saved)
            )
            return found if mine or unclaimed or died else None
    return None
