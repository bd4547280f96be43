"""A node's side of bringing a project: it says what it lacks, takes it, and lays the project out."""

from __future__ import annotations

import errno
import os
import queue
import shutil
import threading
from pathlib import Path
from typing import Any

from lattice.launching.channel import BrokenChannelError, Channel, Kind
from lattice.launching.sync.layout import Layout
from lattice.launching.sync.manifest import DIGEST_SIZE, File, Manifest, shown
from lattice.launching.sync.places import moved, moved_settings
from lattice.launching.sync.store import Contents, Writer, cache_folder

TRIES = 5
"""times that the same project is asked for; contents may have been damaged, or removed by somebody else"""
NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR)
"""why a cache may not be made: a home that cannot be written, or none"""
FULL = (errno.ENOSPC, errno.EDQUOT)


class Intake:
    """Takes projects. What takes long is done in a thread of its own, so that the launcher is heard meanwhile."""

    def __init__(self, channel: Channel, folder: Path) -> None:
        """
        Be ready.

        :param channel: to the launcher
        :param folder: of the node: what is in it goes with the node
        """
        self._channel = channel
        self._folder = folder
        self._told = bytearray()
        self._manifest: Manifest | None = None
        self._identity = ""
        self._layout: Layout | None = None
        self._store: Contents | None = None
        self._wanted: dict[str, int] = {}
        self._writer: Writer | None = None
        self._tries = 0
        self._looks: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def take(self, kind: Kind, body: bytes) -> None:
        """Take a message of the launcher about a project."""
        if kind == Kind.MANIFEST:
            self._take_manifest(body)
        else:
            self._take_content(body)

    def _take_manifest(self, body: bytes) -> None:
        """Take a part of a manifest; an empty one ends it, and asks to look at what is missing, or to look again."""
        if body:
            self._told += body
            return
        self._abandon()
        if self._told:
            self._manifest = Manifest.decode(bytes(self._told))
            self._identity = self._manifest.identity
            self._told.clear()
            self._tries = 0
        self._look()

    def _take_content(self, body: bytes) -> None:
        """Take a part of a content; what was not asked for is somebody else's, or of an earlier project."""
        digest, data = body[:DIGEST_SIZE].hex(), memoryview(body)[DIGEST_SIZE:]
        size = self._wanted.get(digest)
        if size is None or self._store is None:
            return
        try:
            if self._writer is None or self._writer.digest != digest:
                self._drop_writer()
                self._writer = self._store.writer(digest)
            self._writer.write(data)
            if self._writer.size < size:
                return
            writer, self._writer = self._writer, None
            writer.commit()
        except OSError as error:
            self._abandon()
            self._answer(error)
            return
        del self._wanted[digest]
        if not self._wanted:
            self._look()

    def move(self, settings: dict[str, Any]) -> dict[str, Any]:
        """
        Make the settings of a run fit for this host.

        :param settings: of the launcher
        :return: the same, with paths in the project as they are here, and where it is
        """
        folder = ""
        if settings["inside"] is not None and self._layout is not None:
            folder = str(self._layout.folder)
            settings = moved_settings(settings, folder)
            env_file = moved(settings["env_file"], settings["inside"], folder)
            if settings["env_file"] and Path(env_file).exists():  # else it is one of the host's own
                settings["env_file"] = env_file
            if Path(settings["cwd"]).is_relative_to(folder):  # it may be a folder without files, or ignored
                Path(settings["cwd"]).mkdir(parents=True, exist_ok=True)
        return {**settings, "project": folder}

    def _look(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="project", daemon=True)
            self._thread.start()
        self._looks.put(None)

    def _work(self) -> None:
        while True:
            self._looks.get()
            try:
                self._lay_out()
            except OSError as error:
                self._answer(error)
            except BrokenChannelError:
                return

    def _lay_out(self) -> None:
        manifest, identity = self._manifest, self._identity
        assert manifest is not None
        store = self._store = self._store or self._open_store()
        if self._layout is None or self._layout.folder.name != manifest.name:
            if self._layout is not None:
                shutil.rmtree(self._layout.folder, ignore_errors=True)
            self._layout = Layout(self._folder / "project" / manifest.name)
        outdated = self._layout.outdated(manifest)
        files = [entry for path in outdated if isinstance(entry := manifest.entries[path], File) and entry.size]
        missing = {file.digest: file.size for file in files if not store.has(file.digest, file.size)}
        if not missing:
            damaged = self._layout.update(manifest, outdated, store)
            missing = {digest: manifest.contents[digest] for digest in damaged}
        if not missing:
            self._channel.tell(Kind.SYNCED, project=identity, problem="")
            if outdated:
                store.prune()
            return
        self._tries += 1
        if self._tries > TRIES:
            raise OSError(errno.EIO, f"contents were damaged {TRIES} times in a row on their way to this host")
        self._wanted = missing
        self._channel.tell(Kind.WANTED, project=identity, store=store.identity, missing=list(missing))

    def _open_store(self) -> Contents:
        try:
            return Contents(cache_folder(os.environ))
        except OSError as error:
            if error.errno not in NOT_OURS:
                raise
            return Contents(self._folder)  # for this launch only

    def _answer(self, error: OSError) -> None:
        """Say what is wrong here."""
        where = error.filename or self._folder
        problem = f"{error.strerror or error} ({where})."
        if error.errno in FULL and self._manifest is not None:
            needed = shown(sum(self._manifest.contents.values()))
            problem = (
                f"there is no space left for the project, which takes {needed}, twice ({where}). Free some, or set "
                "XDG_CACHE_HOME and TMPDIR on that host: the first says where contents are kept, the second where "
                "the project is laid out."
            )
        try:
            self._channel.tell(Kind.SYNCED, project=self._identity, problem=problem)
        except BrokenChannelError:
            pass  # whoever listens ends us

    def _abandon(self) -> None:
        self._wanted = {}
        self._drop_writer()

    def _drop_writer(self) -> None:
        if self._writer is not None:
            self._writer.discard()
            self._writer = None
