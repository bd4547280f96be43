"""Hosts that do not see the caller's project: real sshds, each with mounts over it and caches of its own."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agents import ROOT
from tests.lab.scripts import require
from tests.launching.transports.sshd import Server, server
from tests.waiting import eventually

# Each word is a folder that gets an empty file system, with its size; then the command.
MOUNT = 'while [ "$1" != -- ]; do mount -t tmpfs -o size="$2" none "$1" || exit 1; shift 2; done; shift; exec "$@"'


@dataclass(frozen=True)
class Far:
    """Hosts that are up."""

    folder: Path
    hidden: Path
    config: Path
    python: Path
    servers: Mapping[str, Server]

    def cache(self, host: str) -> Path:
        """Give the folder in which a host keeps contents; it is seen from here too."""
        return self.folder / host / "cache"

    def temporary(self, host: str) -> Path:
        """Give the folder in which a host makes its temporary ones."""
        return self.folder / host / "tmp"

    def contents(self, host: str) -> list[Path]:
        """List the contents that a host has."""
        return sorted(self.cache(host).glob("lattice/sync/contents/*/*"))

    def settings(self, *hosts: str) -> dict[str, Any]:
        """Give what a launch needs to run there, quickly."""
        return {
            "hostnames": list(hosts),
            "workers_per_host": 1,
            "backend": None,
            "framework": "generic",
            "log_handlers": None,
            "ssh_config_file": self.config,
            "python": str(self.python),
        }


@contextlib.contextmanager
def far_hosts(
    folder: Path, hidden: Path, *names: str, small: Mapping[str, str] | None = None, shared_cache: bool = False
) -> Iterator[Far]:
    """
    Have hosts for the length of a block. At its end nothing may be left in their temporary folders.

    :param folder: an empty folder of their own
    :param hidden: the folder with the project, which they do not see
    :param names: of the hosts
    :param small: by host, how large its cache can become
    :param shared_cache: whether their home, and so their cache, is on a shared file system
    """
    require("unshare", "mount")
    hidden.mkdir(parents=True, exist_ok=True)
    python = folder / "python"  # which finds the Lattice that is tested, installed or not
    servers = {}
    with contextlib.ExitStack() as stack:
        for name in names:
            place = folder / name
            for inner in ("cache", "tmp"):
                (place / inner).mkdir(parents=True)
            mounts = [str(hidden), "1m"]
            if small and name in small:
                mounts += [str(place / "cache"), small[name]]
            cache = folder / names[0] / "cache" if shared_cache else place / "cache"
            servers[name] = stack.enter_context(
                server(
                    place / "sshd",
                    on=("unshare", "--mount", "--propagation", "private", "sh", "-c", MOUNT, "sh", *mounts, "--"),
                    SetEnv=f"XDG_CACHE_HOME={cache} TMPDIR={place / 'tmp'}",
                )
            )
        python.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT / "src"} exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        config = folder / "config"
        config.write_text("".join(up.host_block(name) for name, up in servers.items()))
        yield Far(folder, hidden, config, python, servers)
    eventually(lambda: not [path for name in names for path in (folder / name / "tmp").iterdir()])


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files into a folder, which is made, and give it."""
    for path, content in files.items():
        full = folder / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def environ(folder: Path) -> dict[str, str]:
    """Give the variables of a caller whose caches and logs are in a folder of a test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LATTICE"))}
    return {
        **kept,
        "PYTHONPATH": str(ROOT / "src"),
        "XDG_CACHE_HOME": str(folder / "caller-cache"),
        "LATTICE_LOG_DIR": str(folder / "logs"),
    }
