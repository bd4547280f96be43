"""``lattice etcd``: a real etcd for the nodes to meet at, which ends when this command ends, however it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lattice.core import addresses
from lattice.errors import LatticeError, UsageError
from lattice.options import values
from lattice.options.facts import loopback
from lattice.options.help import plain_rows
from lattice.options.option import Option
from lattice.options.parsing import Dialect, HelpAsked, Parsed, VersionAsked, parse
from lattice.process.addresses import ANYWHERE, facing

GROUP = "etcd"
HOST = Option(
    "host",
    addresses.host,
    "127.0.0.1",
    "address to listen on; 0.0.0.0 for nodes on other machines",
    "an address of this machine, 0.0.0.0 for all",
    GROUP,
    "ADDRESS",
)
PORT = Option("port", values.whole(1, 65535), "2379", "port to listen on", "a port from 1 to 65535", GROUP, "PORT")
DATA_DIR = Option(
    "data_dir",
    values.text,
    "",
    "folder that keeps the data; without it the data go when this command ends",
    "a folder",
    GROUP,
    "FOLDER",
)
START_TIMEOUT = Option(
    "start_timeout", values.seconds(), "60", "seconds that etcd has to start", "seconds from 0", GROUP, "SECONDS"
)
DIALECT = Dialect("lattice etcd", (HOST, PORT, DATA_DIR, START_TIMEOUT), environment=False, takes_entry=False)

HELP = """\
usage: lattice etcd [options]

Starts the etcd found in PATH, prints the line to run on each node, and stops
etcd on Ctrl-C or SIGTERM. It has no password and no TLS: use it within a
network that you trust.

options:
"""

HOW_TO_GET_ONE = (
    "there is no etcd in PATH; get one with apt-get install etcd-server, dnf install etcd, brew install etcd or from "
    "github.com/etcd-io/etcd/releases, or use --rdzv_backend embedded (LATTICE_RDZV_BACKEND), which needs none"
)
STOP_GRACE = 10.0
PR_SET_PDEATHSIG = 1


class EtcdFailed(LatticeError):
    """The etcd that we started did not start, or ended by itself."""


@dataclass(frozen=True)
class Plan:
    """What to start and where."""

    program: str
    host: str
    port: int
    peer_port: int
    data: str

    @property
    def reachable(self) -> str:
        """The address by which nodes reach it."""
        return own_address() if self.host in ("0.0.0.0", "::", "") else self.host

    def argv(self) -> list[str]:
        """Write the command line."""
        peer = f"http://127.0.0.1:{self.peer_port}"
        return [
            self.program,
            *("--name", "lattice"),
            *("--data-dir", self.data),
            *("--listen-client-urls", f"http://{bracketed(self.host)}:{self.port}"),
            *("--advertise-client-urls", f"http://{bracketed(self.reachable)}:{self.port}"),
            *("--listen-peer-urls", peer),
            *("--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"lattice={peer}"),
            *("--auto-compaction-retention", "1"),
            *("--logger", "zap"),
            *("--log-outputs", "stderr"),
            *("--log-level", "warn"),
        ]


def etcd_command(words: Sequence[str]) -> int:
    """
    Run etcd until a signal ends it.

    :param words: the options
    :return: the exit code: 0 if it was told to stop
    :raises UsageError: if there is no etcd, or its port is taken
    :raises EtcdFailed: if etcd does not start or ends by itself
    """
    try:
        parsed = parse(words, {}, DIALECT)
    except HelpAsked:
        print(HELP + plain_rows(DIALECT), end="", flush=True)
        return 0
    except VersionAsked:
        from lattice import __version__

        print(f"lattice {__version__}", flush=True)
        return 0
    with _told_to_stop() as told, tempfile.TemporaryDirectory(prefix="lattice-etcd-") as folder:
        plan = _plan(parsed, folder)
        log = Path(folder, "etcd.log")
        with log.open("wb") as output:
            etcd = subprocess.Popen(
                plan.argv(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C reaches it through us alone
                preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509 - this process has one thread
            )
        try:
            return _attend(etcd, plan, log, parsed[START_TIMEOUT], told)
        finally:
            _stop(etcd)


def bracketed(host: str) -> str:
    """Write a host as in an address with a port."""
    return f"[{host}]" if ":" in host else host


def own_address() -> str:
    """Find the address that other machines know this one by; no packet is sent."""
    return facing(ANYWHERE) or socket.gethostname()


@contextlib.contextmanager
def _told_to_stop() -> Iterator[socket.socket]:
    """Give a socket that can be read once a signal told us to stop, or a child ended."""
    read, write = socket.socketpair()
    with read, write:
        write.setblocking(False)
        read.setblocking(False)
        old_descriptor = signal.set_wakeup_fd(write.fileno())
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
        old = {number: signal.signal(number, lambda *_: None) for number in numbers}
        try:
            yield read
        finally:
            signal.set_wakeup_fd(old_descriptor)
            for number, handler in old.items():
                signal.signal(number, handler)


def _plan(parsed: Parsed, folder: str) -> Plan:
    program = shutil.which("etcd")
    if program is None:
        raise UsageError(HOW_TO_GET_ONE)
    host, port = parsed[HOST] or "127.0.0.1", parsed[PORT]
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as error:
        raise UsageError(f"--host is {host!r} ({error.strerror}); accepted: {HOST.accepts}") from None
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            raise UsageError(
                f"etcd cannot listen on {host} port {port}: {error.strerror}; choose another --port or --host, or stop "
                "whoever has it"
            ) from None
    data = parsed[DATA_DIR]
    if data:
        try:
            Path(data).mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise UsageError(f"--data_dir is {data!r}: {error.strerror}; accepted: {DATA_DIR.accepts}") from None
    # etcd takes names for its own address only as an address
    return Plan(program, str(address[0]), port, _free_port(), data or f"{folder}/data")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class _die_with:  # noqa: N801 - used like a function
    """Make a child end with this process; everything it needs is loaded before the fork."""

    def __init__(self, parent: int) -> None:
        import ctypes

        self.parent = parent
        self.prctl = ctypes.CDLL(None).prctl

    def __call__(self) -> None:
        self.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != self.parent:
            os._exit(1)


def _attend(etcd: subprocess.Popen[bytes], plan: Plan, log: Path, start_timeout: float, told: socket.socket) -> int:
    deadline = time.monotonic() + start_timeout
    while not _healthy(plan):
        if time.monotonic() > deadline:
            raise EtcdFailed(f"etcd did not answer on {plan.host} port {plan.port} in {start_timeout:g}s{_tail(log)}")
        if _stopped(etcd, log, told, 0.05):
            return 0
    if _stopped(etcd, log, told, 0):  # whoever answered, ours is alive
        return 0
    _announce(plan)
    while not _stopped(etcd, log, told, None):
        pass
    print("lattice: stopping etcd", flush=True)
    return 0


def _stopped(etcd: subprocess.Popen[bytes], log: Path, told: socket.socket, patience: float | None) -> bool:
    """Wait for a signal: true if it tells us to stop, an error if etcd has ended."""
    told.settimeout(patience)
    try:
        numbers = told.recv(64)
    except (BlockingIOError, TimeoutError):
        numbers = b""
    if any(number != signal.SIGCHLD for number in numbers):
        return True
    if etcd.poll() is not None:
        raise EtcdFailed(f"etcd ended with exit code {etcd.returncode}{_tail(log)}")
    return False


def _healthy(plan: Plan) -> bool:
    from http.client import HTTPConnection, HTTPException

    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(plan.host, plan.host)
    connection = HTTPConnection(host, plan.port, timeout=1)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
    return "".join(f"\n  {line[:1000]}" for line in lines) or " and wrote nothing"


def _announce(plan: Plan) -> None:
    endpoint = f"{bracketed(plan.reachable)}:{plan.port}"
    print(f"etcd answers at {endpoint}. On each of the nodes run, with your number of nodes and your script:\n")
    print(f"  lattice run --nnodes 2 --rdzv_endpoint {endpoint} --rdzv_id my-run train.py\n")
    if loopback(plan.host):
        print("Only this machine can reach it; with nodes on other machines start it with --host 0.0.0.0.")
    else:
        print("Whoever reaches this address can read and write all of it: it has no password.")
    print("Ctrl-C stops it.", flush=True)


def _stop(etcd: subprocess.Popen[bytes]) -> None:
    if etcd.poll() is not None:
        return
    etcd.terminate()
    try:
        etcd.wait(STOP_GRACE)
    except subprocess.TimeoutExpired:
        print("lattice: etcd did not stop, killing it", file=sys.stderr)
        etcd.kill()
        etcd.wait()
