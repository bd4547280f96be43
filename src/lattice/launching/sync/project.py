"""The project folder of a launch, from where it is here to the hosts that do not have it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from lattice.launching.handlers import log_folder
from lattice.launching.hosts import HostSpec
from lattice.launching.supervisor import Crew
from lattice.launching.sync.delivery import deliver
from lattice.launching.sync.listing import project_folder
from lattice.launching.sync.manifest import hasher
from lattice.launching.sync.places import places
from lattice.launching.sync.snapshot import Snapshot, take
from lattice.launching.sync.store import cache_folder


class Project:
    """A project, and what was read of it last."""

    def __init__(self, sync: object) -> None:
        """Find the one that is meant; see :func:`project_folder`."""
        self.root = project_folder(sync)
        self._snapshot: Snapshot | None = None

    def read(self, hosts: Iterable[HostSpec]) -> None:
        """
        Read it, if there is a host that it is sent to.

        :param hosts: of the launch
        :raises UsageError: it is too large
        """
        if any(host.transport != "local" for host in hosts):
            self._snapshot = self._take()

    def bring(
        self, crew: Crew, settings: dict[str, Any], *, say: Callable[[str], None], cancelled: threading.Event
    ) -> None:
        """
        Have it on all hosts.

        :param crew: their nodes
        :param settings: of the run; gets what nodes need to know of the project
        :param say: takes words for the user
        :param cancelled: set once the caller wants no more of it
        """
        paths = settings["variables"].get("PYTHONPATH", "").split(os.pathsep)
        settings["inside"] = places(str(self.root), filter(None, (settings["cwd"], settings["env_file"], *paths)))
        if self._snapshot is not None:
            self._snapshot, _ = deliver(
                crew, self._snapshot, self._take, settings["nodes"][0], say=say, cancelled=cancelled
            )
            settings["nodes"][1] = len(crew.nodes)
            manifest = self._snapshot.manifest
            if manifest.has_module(filter(None, settings["preload"].split(","))):
                settings["preloaded"] = manifest.identity

    def _take(self) -> Snapshot:
        memory = cache_folder(os.environ) / "digests" / hasher(os.fsencode(self.root)).hexdigest()[:32]
        return take(self.root, (log_folder(os.environ),), memory)
