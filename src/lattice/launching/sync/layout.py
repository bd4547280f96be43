"""Puts a project into a folder, out of a store, and brings it up to date for the next run."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from lattice.launching.sync.manifest import Entry, File, Link, Manifest
from lattice.launching.sync.store import Contents

Mark = tuple[int, int, int, int, int]


class Layout:
    """
    The folder in which workers find the project.

    Files are copies. What workers changed of them is put right before the next run; what they added stays.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._laid: dict[str, tuple[Entry, Mark]] = {}

    def outdated(self, manifest: Manifest) -> list[str]:
        """List the paths that are not there as they should be, in order."""
        found = []
        for path, entry in manifest.entries.items():
            laid, mark = self._laid.get(path, (None, None))
            if laid != entry or mark != self._mark(path):
                found.append(path)
        return sorted(found)

    def update(self, manifest: Manifest, paths: Iterable[str], store: Contents) -> list[str]:
        """
        Bring the folder up to date.

        :param manifest: what shall be there
        :param paths: what is outdated of it
        :param store: has the contents
        :return: digests of contents that it turned out not to have
        :raises OSError: something cannot be written
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in [path for path in self._laid if path not in manifest.entries]:
            del self._laid[path]
            self._remove(path)
        damaged = []
        folders: set[str] = set()
        for path in paths:
            self._make_folders(path, folders)
            self._forget_compiled(path)
            full = self.folder / path
            _clear(full)
            entry = manifest.entries[path]
            if isinstance(entry, Link):
                full.symlink_to(entry.target)
            elif not self._write(full, entry, store):
                damaged.append(entry.digest)
                continue
            mark = self._mark(path)
            assert mark is not None
            self._laid[path] = entry, mark
        return damaged

    def _write(self, full: Path, entry: File, store: Contents) -> bool:
        try:
            with full.open("xb") as file:
                right = not entry.size or store.copy(entry.digest, entry.size, file)
            if right:
                full.chmod(entry.mode | stat.S_IRUSR | stat.S_IWUSR)
        except OSError:
            full.unlink(missing_ok=True)
            raise
        if not right:
            full.unlink()
        return right

    def _remove(self, path: str) -> None:
        """Take away what is no longer of the project, with folders that are empty then: they would be modules too."""
        full = self.folder / path
        if full.is_symlink() or full.is_file():
            full.unlink()
        self._forget_compiled(path)
        for folder in full.parents:
            if folder == self.folder:
                break
            try:
                folder.rmdir()
            except OSError:
                break

    def _forget_compiled(self, path: str) -> None:
        """Python knows a changed source by its second and its size: two versions may have both in common."""
        full = self.folder / path
        if full.suffix == ".py":
            cache = full.parent / "__pycache__"
            if cache.is_dir():
                for compiled in [one for one in cache.iterdir() if one.name.startswith(f"{full.stem}.")]:
                    _clear(compiled)
                try:
                    cache.rmdir()
                except OSError:
                    pass  # others are in it

    def _make_folders(self, path: str, made: set[str]) -> None:
        parts = path.split("/")[:-1]
        for end in range(1, len(parts) + 1):
            folder = "/".join(parts[:end])
            if folder not in made:
                made.add(folder)
                full = self.folder / folder
                if full.is_symlink() or not full.is_dir():
                    _clear(full)
                    full.mkdir()

    def _mark(self, path: str) -> Mark | None:
        try:
            state = os.lstat(self.folder / path)
        except OSError:
            return None
        return state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_mode


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
