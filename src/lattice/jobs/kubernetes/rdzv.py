"""What the container of a job's etcd runs."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

from lattice.errors import LatticeError
from lattice.jobs import protected_etcd
from lattice.jobs.kubernetes.order import PORT, TOLD, WORK


def main() -> int:
    """Run etcd until it ends, or this pod does."""
    tls = ["--cert-file", f"{TOLD}/certificate", "--key-file", f"{TOLD}/key"]
    url = f"https://{socket.gethostbyname(socket.gethostname())}:{PORT}"
    # A pod in this one's place has an empty folder, and is another etcd.
    identity = os.environ.get("LATTICE_POD_UID", "") or socket.gethostname()
    try:
        password = Path(TOLD, "password").read_text(encoding="utf-8")
        etcd = protected_etcd.start(Path(WORK), identity, password, url, *tls)
    except LatticeError as error:
        print(f"lattice: {error}", file=sys.stderr, flush=True)
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: etcd.terminate())
    return etcd.wait()
