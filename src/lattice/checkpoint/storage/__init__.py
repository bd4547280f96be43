"""Where checkpoints lie: a folder, S3, or whatever fsspec knows; one contract for all."""

from __future__ import annotations

import os
from typing import Protocol

from lattice.errors import UsageError


class Storage(Protocol):
    """
    Files by name, with ``/`` between folder and file. Every failure is an OSError that says what and where.

    All of it may be called by any process at any time; what is written is there as a whole or not at all.
    """

    def names(self, folder: str) -> list[str]:
        """List what is directly in a folder; nothing if there is no such folder."""

    def read(self, name: str) -> memoryview:
        """
        Give what is in a file.

        :raises FileNotFoundError: there is none
        """

    def write(self, name: str, data: memoryview) -> None:
        """Write a file, instead of one of that name."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a file unless there is one: of several who try, one can."""

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it; nothing happens if there is none."""


def open_storage(where: str) -> Storage:
    """
    Find the storage for a place.

    :param where: a folder, ``s3://bucket/prefix``, or a URL of fsspec
    :raises UsageError: it cannot be used; it says what to install
    """
    scheme, mark, rest = where.partition("://")
    if not mark or scheme == "file":
        from lattice.checkpoint.storage.folder import Folder

        return Folder(rest if mark else where)
    if scheme == "s3":
        from lattice.checkpoint.storage.s3 import S3

        return S3(rest)
    from lattice.checkpoint.storage.other import Other

    return Other(where)


def place(where: str | os.PathLike[str]) -> str:
    """
    Give one spelling of a place, right in any process of this node.

    :raises UsageError: it names nothing
    """
    text = os.fspath(where)
    if not text:
        raise UsageError("checkpoints need a place: a folder, or s3://bucket/prefix.")
    if "://" in text:
        return text.rstrip("/")
    return os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - links may change meanwhile
