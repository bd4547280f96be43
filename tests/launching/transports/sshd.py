"""A real sshd: a child of the test, on a free port, with keys and configuration of its own."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lattice.process.guard import read_processes
from tests.etcd_server import free_ports
from tests.waiting import eventually


@dataclass(frozen=True)
class Server:
    """An sshd that is up."""

    folder: Path
    port: int
    pid: int
    address: str = "127.0.0.1"

    @property
    def user_key(self) -> Path:
        """The private key that it lets in."""
        return self.folder / "user"

    @property
    def known_hosts(self) -> Path:
        """A file that knows its host key."""
        return self.folder / "known_hosts"

    def log(self) -> str:
        """Give what it has logged."""
        return (self.folder / "log").read_text(errors="replace")

    def descendants(self) -> list[int]:
        """List the processes of its sessions."""
        processes = [process for process in read_processes() if not process.ended]
        found = [self.pid]
        for pid in found:
            found += [process.pid for process in processes if process.parent == pid]
        return found[1:]

    def host_block(self, name: str, **more: str) -> str:
        """Write a block for an SSH configuration that leads here, unless more says otherwise."""
        values = {
            "HostName": self.address,
            "Port": str(self.port),
            "IdentityFile": str(self.user_key),
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": str(self.known_hosts),
            "GlobalKnownHostsFile": "none",
            **more,
        }
        return f"Host {name}\n" + "".join(f"  {key} {value}\n" for key, value in values.items())


@contextlib.contextmanager
def server(folder: Path, *, on: Sequence[str] = (), address: str = "127.0.0.1", **more: str) -> Iterator[Server]:
    """
    Have an sshd for the length of a block. At its end no session may be left.

    :param folder: an empty folder of its own
    :param on: the beginning of a command that runs it elsewhere, in its own process
    :param address: where it listens
    :param more: settings for sshd_config
    """
    program = shutil.which("sshd", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("needs sshd (openssh-server)")
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        pytest.skip(f"ssh needs a user with a name, and {os.geteuid()} has none here")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # as its service does: for what it runs without privileges
    folder.mkdir(parents=True)
    for key in ("host", "user"):
        make_key(folder / key)
    settings = {
        "ListenAddress": address,
        "HostKey": str(folder / "host"),
        "PidFile": "none",
        "AuthorizedKeysFile": str(folder / "user.pub"),
        "StrictModes": "no",
        "UsePAM": "no",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        **more,
    }
    process, port = _start([*on, program], folder, settings)
    (folder / "known_hosts").write_text(f"[{address}]:{port} {(folder / 'host.pub').read_text()}")
    up = Server(folder, port, process.pid, address)
    try:
        yield up
        eventually(lambda: not up.descendants(), within=20)
    finally:
        for pid in up.descendants():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()


def make_key(path: Path) -> None:
    """Make a key pair without a passphrase."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True)


def _start(program: list[str], folder: Path, settings: dict[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    for _ in range(5):  # between finding a port and listening on it somebody else may take it
        (port,) = free_ports(1)
        configuration = folder / "sshd_config"
        configuration.write_text("".join(f"{key} {value}\n" for key, value in {**settings, "Port": port}.items()))
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([*program, "-D", "-e", "-f", str(configuration)], stderr=log)

        def listens(process: subprocess.Popen[bytes] = process) -> bool:
            return process.poll() is not None or "Server listening on" in (folder / "log").read_text()

        eventually(listens)
        if process.poll() is None:
            return process, port
    raise AssertionError((folder / "log").read_text())
