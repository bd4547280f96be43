"""One etcd for all tries, on a free port."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_TIMEOUT = 30.0
SERVERS: set[int] = set()
"""processes that stay when those of a try are ended"""


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running_etcd() -> Iterator[str]:
    """Run etcd while the context lasts, and give its address; an empty one if there is no etcd in PATH."""
    if not shutil.which("etcd"):
        yield ""
        return
    endpoint, peer = f"127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="lattice-bench-etcd-") as folder:
        argv = ["etcd", "--data-dir", f"{folder}/data"]
        argv += ["--listen-client-urls", f"http://{endpoint}", "--advertise-client-urls", f"http://{endpoint}"]
        argv += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        argv += ["--initial-cluster", f"default={peer}"]
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        SERVERS.add(process.pid)
        try:
            _wait_until_ready(process, Path(folder) / "log")
            yield endpoint
        finally:
            SERVERS.discard(process.pid)
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while b"ready to serve client requests" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"etcd did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.02)
