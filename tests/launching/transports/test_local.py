"""The local transport: a child with our environment and a stream, and what is said when it does not start."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from lattice.launching.transports import NODE_MODULE, NodeProcess, node_program, transport
from tests.launching.transports.stream import ECHO, ended, gone, greeted, host, read_exactly, there_and_back, verdict
from tests.waiting import eventually


def start(*program: str) -> NodeProcess:
    return transport("local", program).start(host("localhost", "local"))


def python(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script)


def test_any_bytes_and_much_of_them_in_both_directions() -> None:
    process = start(*ECHO)
    try:
        assert greeted(process)
        there_and_back(process, bytes(range(256)))
        there_and_back(process, os.urandom(1 << 20) * 50)
    finally:
        process.kill()


def test_it_has_our_environment_and_a_session_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATTICE_TEST_VARIABLE", "0123456789")
    process = start(
        *python("import os\nprint(os.environ['LATTICE_TEST_VARIABLE'], os.getsid(0) == os.getpid(), os.getcwd())")
    )
    said = read_exactly(process, 10000).decode()
    process.kill()
    assert said == f"0123456789 True {Path.cwd()}\n"


def test_our_descriptors_are_not_its_own() -> None:
    inheritable = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(inheritable, True)
    process = start(*python("import os\nprint(sorted(os.listdir('/proc/self/fd')))"))
    said = read_exactly(process, 10000).decode()
    process.kill()
    os.close(inheritable)
    assert said == "['0', '1', '2', '3']\n"  # the last is that of the listing itself


def test_signals_that_we_ignore_are_not_ignored_there() -> None:
    process = start("grep", "SigIgn", "/proc/self/status")
    said = read_exactly(process, 10000).decode()
    process.kill()
    ignored = {number for number in range(1, 65) if int(said.split()[1], 16) >> (number - 1) & 1}
    assert not ignored & signal.valid_signals()  # the C library has two of its own


def test_killed_by_a_signal() -> None:
    assert "localhost: killed by SIGKILL, and said nothing." in verdict(
        start(*python("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"))
    )


def test_its_end_is_seen_though_a_child_of_its_own_keeps_the_streams() -> None:
    script = (
        "import os, subprocess\n"
        "child = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "os.write(1, b'%9d' % child.pid)\n"
        "os._exit(7)"
    )
    process = start(*python(script))
    pid = int(read_exactly(process, 9))
    try:
        assert ended(process) == 7
        process.kill()
    finally:
        os.kill(pid, signal.SIGKILL)
    gone(pid)


def test_what_it_left_in_its_group_goes_with_it() -> None:
    script = (
        "import os, subprocess\n"
        "child = subprocess.Popen(['sleep', '300'])\n"
        "os.write(1, b'%9d' % child.pid)\n"
        "os._exit(0)"
    )
    process = start(*python(script))
    pid = int(read_exactly(process, 9))
    gone(pid)
    assert ended(process) == 0
    process.kill()


def test_no_such_python() -> None:
    said = verdict(start("/no/such/python", "-m", NODE_MODULE))
    assert said.startswith("localhost: /no/such/python cannot be executed there (/no/such/python: No such file")


def test_no_lattice() -> None:
    assert f"localhost: {sys.executable} has no Lattice (No module named 'lattice')" in verdict(
        start(sys.executable, "-I", "-S", "-m", NODE_MODULE)
    )


def test_an_end_without_a_word() -> None:
    assert "ended without a word" in verdict(start(*python("")))


def test_no_word_so_far() -> None:
    process = start(*python("import sys\nsys.stderr.write('thinking')\nsys.stderr.flush()\nsys.stdin.read()"))
    eventually(lambda: process.stderr() == "thinking")
    assert process.poll() is None
    assert process.diagnose().startswith(f"localhost: no word from {sys.executable} so far: thinking. Is that machine")
    process.kill()


def test_the_program_of_a_node() -> None:
    assert node_program() == (sys.executable, "-m", "lattice.launching.node")
    assert node_program("python3.11")[0] == "python3.11"
    with pytest.raises(ValueError):
        transport("carrier pigeon", ECHO)
