from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from lattice.options.parsing import RUN, parse
from lattice.options.table import NNODES, RDZV_ENDPOINT, RDZV_ID
from tests.etcd_server import free_ports, listens, require_etcd
from tests.waiting import eventually, patience


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Running:
    """A ``lattice etcd`` of a test's own."""

    def __init__(self, folder: Path, *options: str) -> None:
        require_etcd()
        (self.port,) = free_ports(1)
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.output = folder / "output"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lattice", "etcd", "--port", str(self.port), *options],
                stdout=output,
                stderr=output,
                env={**os.environ, "TMPDIR": str(self.temporary)},
            )

    def shown(self) -> str:
        return self.output.read_text()

    def etcd(self) -> int:
        """Wait until it serves, and give the process id of etcd."""

        def ready() -> bool:
            assert self.process.poll() is None, self.shown()
            return "Ctrl-C stops it." in self.shown()

        eventually(ready)
        (pid,) = children(self.process.pid)
        assert listens(pid, self.port)
        return pid


@contextlib.contextmanager
def started(folder: Path, *options: str) -> Iterator[Running]:
    command = Running(folder, *options)
    try:
        yield command
    finally:
        command.process.kill()
        command.process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_stop(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path) as command:
        etcd = command.etcd()
        health = urllib.request.urlopen(f"http://127.0.0.1:{command.port}/health", timeout=patience(10)).read()
        assert b'"health":"true"' in health
        command.process.send_signal(number)
        assert command.process.wait(patience(30)) == 0
        assert not running(etcd)
        assert list(command.temporary.iterdir()) == []
        assert "Traceback" not in command.shown()


def test_the_line_it_prints_is_a_command_line_of_ours(tmp_path: Path) -> None:
    with started(tmp_path) as command:
        command.etcd()
        line = re.search(r"^ +lattice run (.*)$", command.shown(), re.MULTILINE)
        assert line
        parsed = parse(line[1].split(), {}, RUN)
        assert parsed[RDZV_ENDPOINT] == (("127.0.0.1", command.port),)
        assert parsed[NNODES].maximum == 2
        assert parsed[RDZV_ID]
        assert parsed.entry == ("train.py",)


def test_etcd_does_not_outlive_a_killed_command(tmp_path: Path) -> None:
    with started(tmp_path) as command:
        etcd = command.etcd()
        command.process.kill()
        eventually(lambda: not running(etcd))


def test_a_data_directory_is_kept_and_found_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for attempt, expected in (("first", ""), ("second", "value")):
        folder = tmp_path / attempt
        folder.mkdir()
        with started(folder, "--data_dir", str(data)) as command:
            command.etcd()
            etcdctl = ["etcdctl", "--endpoints", f"127.0.0.1:{command.port}"]
            environ = {**os.environ, "ETCDCTL_API": "3"}
            read = [*etcdctl, "get", "key", "--print-value-only"]
            assert subprocess.check_output(read, env=environ, text=True).strip() == expected
            subprocess.check_call([*etcdctl, "put", "key", "value"], env=environ, stdout=subprocess.DEVNULL)
            command.process.terminate()
            assert command.process.wait(patience(30)) == 0
    assert (data / "member").is_dir()


def test_a_taken_port_is_said_at_once(tmp_path: Path) -> None:
    require_etcd()
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        words = [sys.executable, "-m", "lattice", "etcd", "--port", str(port)]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=patience(60), check=False)
    assert ended.returncode == 2
    assert re.fullmatch(rf"lattice: etcd cannot listen on 127.0.0.1 port {port}: Address already.*\n", ended.stderr)


def test_data_cannot_go_where_there_can_be_no_folder(tmp_path: Path) -> None:
    with started(tmp_path, "--data_dir", "/proc/nowhere") as command:
        assert command.process.wait(patience(60)) == 2
        assert "lattice: --data_dir is '/proc/nowhere': No such file" in command.shown()
        assert list(command.temporary.iterdir()) == []


def test_an_etcd_that_dies_at_its_start_is_quoted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "member").touch()
    with started(tmp_path, "--data_dir", str(data)) as command:
        assert command.process.wait(patience(60)) == 1
        assert "lattice: etcd ended with exit code" in command.shown()
        assert str(data) in command.shown()
        assert "Traceback" not in command.shown()
        assert list(command.temporary.iterdir()) == []


def test_an_etcd_that_dies_later_is_reported(tmp_path: Path) -> None:
    with started(tmp_path) as command:
        os.kill(command.etcd(), signal.SIGKILL)
        assert command.process.wait(patience(60)) == 1
        assert "lattice: etcd ended with exit code -9" in command.shown()


def test_without_an_etcd_it_says_how_to_get_one(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "lattice", "etcd"]
    environ = {**os.environ, "PATH": str(tmp_path)}
    ended = subprocess.run(words, capture_output=True, text=True, timeout=patience(60), env=environ, check=False)
    assert ended.returncode == 2
    assert "apt-get install etcd-server" in ended.stderr
    assert "--rdzv_backend embedded" in ended.stderr
