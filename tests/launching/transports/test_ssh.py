"""The ssh transport against real sshds: streams, ends, configuration, many at once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lattice.launching.transports import NodeProcess, ssh, transport
from lattice.process.guard import read_processes
from tests.etcd_server import free_ports
from tests.launching.transports.sshd import Server, make_key, server
from tests.launching.transports.stream import (
    ECHO,
    alive,
    ended,
    gone,
    greeted,
    host,
    read_exactly,
    there_and_back,
    verdict,
)
from tests.waiting import eventually, patience

WAITS = (sys.executable, "-c", "import os, sys\nos.write(1, b'%9d' % os.getpid())\nsys.stdin.read()")
QUICK = ("ServerAliveInterval=1", "ServerAliveCountMax=2")
ANY_BYTES = bytes(range(256)) + b"\n~.\r\n\x00\xff\x04\x03~?" * 3


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("ssh") / "sshd") as up:
        yield up


@pytest.fixture
def config(sshd: Server, tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(sshd.host_block("node"))
    return path


def start(config: Path, given: str = "node", program: tuple[str, ...] = ECHO) -> NodeProcess:
    return transport("ssh", program, config).start(host(given))


def local_end(process: NodeProcess) -> int:
    """Find the ssh behind a process: the only child of ours that is one."""
    assert process.poll() is None
    (pid,) = (
        child.pid
        for child in read_processes()
        if child.parent == os.getpid() and Path(f"/proc/{child.pid}/cmdline").read_bytes().startswith(b"ssh\0")
    )
    return pid


def test_any_bytes_and_much_of_them_in_both_directions(config: Path) -> None:
    process = start(config)
    try:
        assert greeted(process)
        there_and_back(process, ANY_BYTES)
        there_and_back(process, os.urandom(1 << 20) * 50)
        assert process.poll() is None
        assert process.stderr() == ""
    finally:
        process.kill()


def test_the_far_end_ends_with_its_stream(sshd: Server, config: Path) -> None:
    process = start(config, program=WAITS)
    pid = int(read_exactly(process, 9))
    assert alive(pid)
    process.kill()
    assert process.poll() == -signal.SIGKILL
    process.kill()  # twice is fine
    gone(pid)
    eventually(lambda: not sshd.descendants())


def test_the_program_s_exit_code_and_errors_arrive(config: Path) -> None:
    process = start(config, program=(sys.executable, "-c", "import sys\nsys.exit('oh no')"))
    said = verdict(process)
    assert process.poll() == 1
    assert process.stderr() == "oh no"
    assert said == f"node: {sys.executable} ended with exit code 1: oh no."


def test_a_program_that_sounds_like_ssh_is_not_started_again(config: Path, tmp_path: Path) -> None:
    script = (
        "import sys\n"
        f"open({str(tmp_path / 'starts')!r}, 'a').write('x')\n"
        "sys.stderr.write('kex_exchange_identification')\n"
        "sys.exit(255)"
    )
    verdict(start(config, program=(sys.executable, "-c", script)))
    assert (tmp_path / "starts").read_text() == "x"


def test_standard_error_is_kept_in_part_and_never_blocks(config: Path) -> None:
    script = (
        "import os\nfor i in range(20000): os.write(2, b'line %d of many to fill a pipe\\n' % i)\nos.write(1, b'hello')"
    )
    process = start(config, program=(sys.executable, "-c", script))
    try:
        assert greeted(process)
        ended(process)
        assert process.stderr().splitlines()[-1] == "line 19999 of many to fill a pipe"
        assert len(process.stderr()) < 64 * 1024
    finally:
        process.kill()


def test_a_killed_ssh_is_seen(config: Path) -> None:
    process = start(config)
    try:
        assert greeted(process)
        os.kill(local_end(process), signal.SIGKILL)
        assert ended(process) == -signal.SIGKILL
        assert os.read(process.stdout, 10) == b""
    finally:
        process.kill()


def test_a_killed_sshd_is_seen(sshd: Server, config: Path) -> None:
    process = start(config)
    try:
        assert greeted(process)
        for pid in sshd.descendants():
            os.kill(pid, signal.SIGKILL)
        assert ended(process) == 255
        assert "connection was lost" in process.diagnose()
    finally:
        process.kill()


def test_a_far_end_that_falls_silent_is_seen(sshd: Server, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "OPTIONS", (*QUICK, *ssh.OPTIONS))  # the first of two counts
    process = start(config)
    try:
        assert greeted(process)
        for pid in sshd.descendants():
            os.kill(pid, signal.SIGSTOP)
        assert ended(process) == 255
        assert "connection was lost: no answer" in process.diagnose()
    finally:
        process.kill()
        for pid in sshd.descendants():
            os.kill(pid, signal.SIGKILL)


def test_a_killed_launcher_leaves_nothing(sshd: Server, config: Path) -> None:
    script = (
        "import os, sys\n"
        "from tests.launching.transports.test_ssh import WAITS, Path, start\n"
        "process = start(Path(sys.argv[1]), program=WAITS)\n"
        "print(os.read(process.stdout, 9).decode(), flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    said = subprocess.run(
        [sys.executable, "-c", script, str(config)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        check=False,
        timeout=patience(60),
    )
    assert said.returncode == -signal.SIGKILL, said.stderr
    gone(int(said.stdout))
    eventually(lambda: not sshd.descendants())


@pytest.mark.parametrize("chosen", ["sntrup761x25519-sha512@openssh.com", None])
def test_a_key_exchange_that_the_user_chose_is_kept(sshd: Server, tmp_path: Path, chosen: str | None) -> None:
    config = tmp_path / "config"
    config.write_text(sshd.host_block("node", **({"KexAlgorithms": chosen} if chosen else {})))
    process = start(config)
    try:
        assert greeted(process)
        words = Path(f"/proc/{local_end(process)}/cmdline").read_bytes().decode().split("\0")
    finally:
        process.kill()
    usual = ssh.settings(("ssh", "-F", "none"), ("localhost",))["kexalgorithms"]
    ours = f"KexAlgorithms={ssh.FAST_EXCHANGE}" in words
    assert ours == (chosen is None and usual.startswith(ssh.SLOW_EXCHANGE))


def test_nothing_but_the_program_is_on_a_command_line(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATTICE_TEST_SECRET", "marker-of-a-secret")
    process = start(config)
    try:
        assert greeted(process)
        lines = {}
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                lines[entry.parent.name] = entry.read_bytes()
            except OSError:
                continue
        assert not [line for line in lines.values() if b"marker-of-a-secret" in line]
        assert any(ECHO[2].encode() in line for line in lines.values())
    finally:
        process.kill()


def test_include_user_and_port_are_heeded(sshd: Server, tmp_path: Path) -> None:
    (tmp_path / "more.conf").write_text(sshd.host_block("127.0.0.1", Port="1", User="nobody-at-all"))
    config = tmp_path / "config"
    config.write_text(f"Include {tmp_path}/*.conf\n")
    user = Path("~").expanduser().owner()
    process = start(config, f"{user}@127.0.0.1:{sshd.port}")
    try:
        assert greeted(process)
    finally:
        process.kill()


def test_through_a_jump_host(sshd: Server, tmp_path: Path) -> None:
    with server(tmp_path / "inner") as inner:
        config = tmp_path / "config"
        config.write_text(sshd.host_block("door") + inner.host_block("node", ProxyJump="door"))
        before = sshd.log().count("Accepted publickey")
        process = start(config)
        assert greeted(process)
        there_and_back(process, ANY_BYTES)
        assert sshd.log().count("Accepted publickey") == before + 1
        process.kill()
        config.write_text(
            sshd.host_block("door") + inner.host_block("node", ProxyJump="door", Port=str(free_ports(1)[0]))
        )
        assert "node: the jump host cannot reach it: " in verdict(start(config))
        config.write_text(
            sshd.host_block("door", Port=str(free_ports(1)[0])) + inner.host_block("node", ProxyJump="door")
        )
        assert "node: 127.0.0.1 refuses connections on port " in verdict(start(config))


def test_an_open_connection_is_used_and_none_is_left_open(sshd: Server, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        sshd.host_block("node", ControlMaster="auto", ControlPath=str(tmp_path / "mux"), ControlPersist="yes")
    )
    process = start(config)
    assert greeted(process)
    process.kill()
    assert not (tmp_path / "mux").exists()
    subprocess.run(["ssh", "-F", str(config), "-f", "-N", "-o", "LogLevel=QUIET", "node"], check=True)
    try:
        before = sshd.log().count("Accepted publickey")
        ways = transport("ssh", ECHO, config)
        several = [ways.start(host("node", index=number)) for number in range(9)]  # more than a door lets in
        try:
            assert all(greeted(one) for one in several)
            assert sshd.log().count("Accepted publickey") == before
        finally:
            for one in several:
                one.kill()
    finally:
        subprocess.run(["ssh", "-F", str(config), "-O", "exit", "node"], check=True, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("width", "number"),
    [
        pytest.param("2", 24, id="few"),
        pytest.param("10:30:100", 50, id="as sshd does by itself", marks=pytest.mark.long),
    ],
)
def test_many_at_once_at_a_server_that_lets_few_in(width: str, number: int, tmp_path: Path) -> None:
    with server(tmp_path / "sshd", MaxStartups=width, LogLevel="VERBOSE") as narrow:
        config = tmp_path / "config"
        config.write_text(narrow.host_block("node"))
        ways = transport("ssh", ECHO, config)
        several = [ways.start(host("node", index=index)) for index in range(number)]
        try:
            assert all(greeted(one) for one in several)
            if width == "2":
                assert "drop connection" in narrow.log()  # else this shows nothing
        finally:
            for one in several:
                one.kill()


def test_killed_while_it_waits_at_a_door(sshd: Server, tmp_path: Path) -> None:
    with socket.socket() as silent:  # takes connections and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        config = tmp_path / "config"
        config.write_text(sshd.host_block("node", Port=str(silent.getsockname()[1])))
        ways = transport("ssh", ECHO, config)
        several = [ways.start(host("node", index=number)) for number in range(12)]
        for one in reversed(several):
            one.kill()
            assert one.poll() == -signal.SIGKILL


class TestWhatIsWrong:
    def test_refused(self, sshd: Server, tmp_path: Path) -> None:
        (port,) = free_ports(1)
        (tmp_path / "config").write_text(sshd.host_block("node", Port=str(port)))
        said = verdict(start(tmp_path / "config"))
        assert said.startswith(f"node: 127.0.0.1 refuses connections on port {port}. Is sshd running there")
        assert said.endswith(f"Try: ssh -F {tmp_path}/config -- node")

    def test_unknown_name(self, tmp_path: Path) -> None:
        (tmp_path / "config").write_text("")
        assert verdict(start(tmp_path / "config", "no-such-host.invalid")).startswith(
            "no-such-host.invalid: the name no-such-host.invalid does not resolve. Check the spelling"
        )

    def test_unreachable(self, sshd: Server, tmp_path: Path) -> None:
        # A queue that is full: who knocks there hears nothing, as from a machine that is off.
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            with socket.create_connection(full.getsockname()):
                port = full.getsockname()[1]
                (tmp_path / "config").write_text(sshd.host_block("node", Port=str(port), ConnectTimeout="1"))
                said = verdict(start(tmp_path / "config"), within=20)
        assert said.startswith(f"node: 127.0.0.1 port {port} cannot be reached: Connection timed out. Is it up")

    def test_silent_host(self, sshd: Server, tmp_path: Path) -> None:
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            port = str(silent.getsockname()[1])
            (tmp_path / "config").write_text(sshd.host_block("node", Port=port, ConnectTimeout="1"))
            assert "nothing that speaks SSH answered in time" in verdict(start(tmp_path / "config"), within=20)

    def test_wrong_key(self, sshd: Server, tmp_path: Path) -> None:
        make_key(tmp_path / "other")
        (tmp_path / "config").write_text(sshd.host_block("node", IdentityFile=str(tmp_path / "other")))
        said = verdict(start(tmp_path / "config"))
        assert "@127.0.0.1 was refused: permission denied (publickey). A key must work without a question" in said

    def test_unknown_host_key(self, sshd: Server, tmp_path: Path) -> None:
        (tmp_path / "config").write_text(sshd.host_block("node", UserKnownHostsFile=str(tmp_path / "none")))
        said = verdict(start(tmp_path / "config"))
        assert said.startswith("node: its host key is not known here. Connect once by hand")

    def test_changed_host_key(self, sshd: Server, tmp_path: Path) -> None:
        make_key(tmp_path / "other")
        (tmp_path / "known").write_text(f"[127.0.0.1]:{sshd.port} {(tmp_path / 'other.pub').read_text()}")
        (tmp_path / "config").write_text(sshd.host_block("node", UserKnownHostsFile=str(tmp_path / "known")))
        assert "it shows another host key than the one on record" in verdict(start(tmp_path / "config"))

    def test_no_python(self, config: Path) -> None:
        said = verdict(start(config, program=("/no/such/python", "-m", "lattice.launching.node")))
        assert said.startswith("node: /no/such/python cannot be executed there (")
        assert said.endswith("name the interpreter of that host with python=.")

    def test_no_lattice(self, config: Path) -> None:
        said = verdict(start(config, program=(sys.executable, "-I", "-S", "-m", "lattice.launching.node")))
        assert said.startswith(
            f"node: {sys.executable} has no Lattice (No module named 'lattice'). Install the version"
        )

    def test_wrong_configuration(self, tmp_path: Path) -> None:
        (tmp_path / "config").write_text("NoSuchOption yes\n")
        said = verdict(start(tmp_path / "config"))
        assert "node: the SSH configuration is wrong: " in said
        assert "Can't open user config file" in verdict(start(tmp_path / "missing"))

    def test_no_ssh(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        assert "node: there is no program 'ssh' on this machine. Install" in verdict(
            transport("ssh", ECHO).start(host("node"))
        )
