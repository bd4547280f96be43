"""Real etcd servers for tests: on free ports, checked to be our own, and always stopped."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.waiting import eventually, patience

READY = b"ready to serve client requests"


def require_etcd() -> None:
    """Skip the test if there is no etcd here, but never in CI."""
    if shutil.which("etcd") and shutil.which("etcdctl"):
        return
    reason = "etcd and etcdctl are not on PATH"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def free_ports(count: int) -> list[int]:
    """
    Find ports on loopback that nobody has, all different.

    They lie below those that the kernel gives away, if there is room, so that no connection takes one before it is
    used, or while a server is down.
    """
    half = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]) // 2
    with contextlib.ExitStack() as stack:
        found: list[int] = []
        while len(found) < count:
            probe = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                # Not by the random module: whoever seeds it alike in two processes gets the same ports in both.
                probe.bind(("127.0.0.1", half + secrets.randbelow(half) if half >= 1024 else 0))
                found.append(probe.getsockname()[1])
        return found


def listens(pid: int, port: int) -> bool:
    """Tell whether the process itself, and not somebody else, listens on a port."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if str(descriptor.readlink()) in inodes:
                return True
    return False


def _thread_states(pid: int) -> list[str]:
    stats = [task / "stat" for task in Path(f"/proc/{pid}/task").iterdir()]
    return [stat.read_text().rsplit(")", 1)[1].split()[0] for stat in stats]


class EtcdServer:
    """
    One etcd process on loopback with its own data directory.

    :param scheme: http, or https with the matching options of etcd in ``options``
    :param options: more options for etcd
    :param client_options: what etcdctl needs to be let in
    """

    def __init__(
        self,
        *,
        name: str = "alone",
        scheme: str = "http",
        options: Sequence[str] = (),
        client_options: Sequence[str] = (),
        ports: tuple[int, int] | None = None,
        cluster: str = "",
    ) -> None:
        require_etcd()
        self.client_port, self._peer_port = ports or tuple(free_ports(2))
        self.client_options = list(client_options)
        self._directory = Path(tempfile.mkdtemp(prefix="lattice-etcd-"))
        self._log = self._directory / "log"
        self._data = self._directory / "data"
        self._process: subprocess.Popen[bytes] | None = None
        client, peer = f"{scheme}://127.0.0.1:{self.client_port}", f"http://127.0.0.1:{self._peer_port}"
        self.url = client
        self._argv = ["etcd", "--name", name, "--data-dir", str(self._data)]
        self._argv += ["--listen-client-urls", client, "--advertise-client-urls", client]
        self._argv += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        self._argv += ["--initial-cluster", cluster or f"{name}={peer}", "--initial-cluster-token", name, *options]

    @property
    def endpoint(self) -> tuple[str, int]:
        """The address for clients."""
        return "127.0.0.1", self.client_port

    @property
    def pid(self) -> int:
        """The process that serves."""
        assert self._process is not None, "etcd does not run"
        return self._process.pid

    def start(self, *, wait: bool = True) -> EtcdServer:
        """Start it, and wait until it serves unless other members have to be started first."""
        assert self._process is None, "etcd runs already"
        with self._log.open("wb") as log:
            # A parent-death signal would follow the thread, not the process; stop() in a fixture does it.
            self._process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if wait:
            self.wait()
        return self

    def wait(self) -> None:
        """Wait until it serves."""
        eventually(self._serves)

    def kill(self) -> None:
        """SIGKILL it: what it did not write is lost."""
        assert self._process is not None, "etcd does not run"
        self._process.kill()
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Stop it without closing anything: it accepts connections and never answers."""
        os.kill(self.pid, signal.SIGSTOP)
        # The signal is on its way when kill returns; a thread that still runs could answer one more request.
        eventually(lambda: all(state == "T" for state in _thread_states(self.pid)))

    def resume(self) -> None:
        """Let a paused server go on."""
        os.kill(self.pid, signal.SIGCONT)

    def restart(self, *, wipe: bool = False) -> None:
        """
        Start it anew on the same ports, with the same data unless that is wiped.
        """
        if self._process is not None:
            self.kill()
        if wipe:
            shutil.rmtree(self._data)
        self.start()

    def stop(self) -> None:
        """End it and remove its files."""
        if self._process is not None:
            self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def etcdctl(self, *arguments: str) -> str:
        """Run etcdctl against it and give what it printed."""
        argv = ["etcdctl", "--endpoints", self.url, *self.client_options, *arguments]
        environment = {**os.environ, "ETCDCTL_API": "3"}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=patience(60), check=False)
        assert done.returncode == 0, f"{argv} said {done.stderr}"
        return done.stdout

    def enable_auth(self, *users: tuple[str, str, str]) -> None:
        """
        Ask for passwords from now on.

        :param users: name, password and the prefix that each may use, besides root with password root
        """
        self.etcdctl("user", "add", "root:root")
        self.etcdctl("user", "grant-role", "root", "root")
        for name, password, prefix in users:
            self.etcdctl("user", "add", f"{name}:{password}")
            self.etcdctl("role", "add", name)
            self.etcdctl("role", "grant-permission", name, "--prefix=true", "readwrite", prefix)
            self.etcdctl("user", "grant-role", name, name)
        self.etcdctl("auth", "enable")
        self.client_options += ["--user", "root:root"]

    def _serves(self) -> bool:
        assert self._process is not None, "etcd does not run"
        assert self._process.poll() is None, f"etcd ended: {self._log.read_text(errors='replace')[-2000:]}"
        return READY in self._log.read_bytes() and listens(self._process.pid, self.client_port)


class EtcdCluster:
    """Several members that hold the same data."""

    def __init__(self, size: int = 3) -> None:
        require_etcd()
        ports = free_ports(2 * size)
        pairs = list(zip(ports[:size], ports[size:], strict=True))
        names = [f"member{number}" for number in range(size)]
        cluster = ",".join(f"{name}=http://127.0.0.1:{peer}" for name, (_, peer) in zip(names, pairs, strict=True))
        token = ("--initial-cluster-token", f"cluster-{ports[0]}")
        self.members = [
            EtcdServer(name=name, ports=pair, cluster=cluster, options=token)
            for name, pair in zip(names, pairs, strict=True)
        ]

    @property
    def endpoints(self) -> tuple[tuple[str, int], ...]:
        """The addresses of all members."""
        return tuple(member.endpoint for member in self.members)

    def start(self) -> EtcdCluster:
        """Start all members and wait until each serves."""
        for member in self.members:
            member.start(wait=False)
        for member in self.members:
            member.wait()
        return self

    def leader(self) -> int:
        """Tell which member leads, by its place in :attr:`members`."""
        return eventually(lambda: [at for at, member in enumerate(self.members) if self._leads(member)])[0]

    def stop(self) -> None:
        """End all members."""
        for member in self.members:
            member.stop()

    @staticmethod
    def _leads(member: EtcdServer) -> bool:
        status = json.loads(member.etcdctl("endpoint", "status", "--write-out", "json"))[0]["Status"]
        return bool(status["leader"] == status["header"]["member_id"])


@contextlib.contextmanager
def running(server: EtcdServer) -> Iterator[EtcdServer]:
    """Run a server for the length of a block."""
    try:
        yield server.start()
    finally:
        server.stop()
