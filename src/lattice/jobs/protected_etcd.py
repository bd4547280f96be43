"""etcd for one job: it listens to the network only when it asks for the password, over TLS."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from lattice.errors import LatticeError

HERE = "http://127.0.0.1:2378"
"""where etcd listens while there is no password yet"""
PEER = "http://127.0.0.1:2380"
START_TIMEOUT = 60.0


def start(folder: Path, identity: str, password: str, url: str, *more: str) -> subprocess.Popen[bytes]:
    """
    Start etcd.

    :param folder: for its data
    :param identity: makes its data another's than those of the machine that it replaces
    :param password: of its user root
    :param url: where it listens, and is found
    :param more: further options: those of TLS
    :raises LatticeError: it does not start, or does not ask for the password
    """
    _protect(folder, identity, password)
    return _start(folder, identity, url, *more)


def _start(folder: Path, identity: str, url: str, *more: str) -> subprocess.Popen[bytes]:
    cluster = ["--initial-cluster", f"lattice={PEER}", "--initial-cluster-token", identity]
    command = [
        *("etcd", "--name", "lattice", "--data-dir", f"{folder}/etcd"),
        *("--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", PEER),
        *("--initial-advertise-peer-urls", PEER, *cluster, "--auto-compaction-retention", "1", *more),
    ]
    try:
        return subprocess.Popen(command)
    except FileNotFoundError:
        raise LatticeError("there is no etcd in the image: base it on Lattice's own, or install etcd there.") from None


def _protect(folder: Path, identity: str, password: str) -> None:
    """Make the password, on an etcd that only this machine can reach."""
    etcd = _start(folder, identity, HERE)
    try:
        deadline = time.monotonic() + START_TIMEOUT
        # With the password: one that comes up on its own data asks for it already; another one does not care.
        while not _etcdctl("endpoint", "health", password=password):
            if etcd.poll() is not None or time.monotonic() > deadline:
                raise LatticeError("etcd does not come up; its words are in the log of this machine.")
            time.sleep(0.2)
        # After a restart all this is there already, and refused.
        _etcdctl("user", "add", "root", "--interactive=false", given=password)
        _etcdctl("role", "add", "root")
        _etcdctl("user", "grant-role", "root", "root")
        _etcdctl("auth", "enable")
        if _etcdctl("get", "anything"):
            raise LatticeError("etcd does not ask for the password.")
    finally:
        etcd.terminate()
        etcd.wait()


def _etcdctl(*words: str, given: str = "", password: str = "") -> bool:
    user = {"ETCDCTL_USER": f"root:{password}"} if password else {}
    ended = subprocess.run(
        ["etcdctl", "--endpoints", HERE, *words],
        env={**os.environ, "ETCDCTL_API": "3", **user},
        input=given.encode(),
        capture_output=True,
        timeout=30,
        check=False,
    )
    return ended.returncode == 0
