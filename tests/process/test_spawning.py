from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from lattice.errors import WorkerNotStarted
from lattice.process.guard import read_process
from lattice.process.spawning import Guard
from lattice.process.workers import Worker
from tests.process.conftest import INCARNATION, MARKER, PYTHON, ended, read_all, read_line
from tests.waiting import eventually

Start = Callable[..., tuple[Worker, int]]


def alive(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and not process.ended


def test_a_worker_is_our_child_in_a_session_of_its_own(start: Start) -> None:
    worker, _ = start("sleep", "1000")
    process = read_process(worker.pid)
    assert process is not None
    assert (process.parent, process.session) == (os.getpid(), worker.pid)
    assert worker.poll() is None


@pytest.mark.parametrize(
    ("script", "code", "number", "status", "text"),
    [
        ("exit 0", 0, None, 0, "exit code 0"),
        ("exit 3", 3, None, 3, "exit code 3"),
        ("exit 255", 255, None, 255, "exit code 255"),
        ("kill -9 $$", None, 9, 137, "signal 9 (SIGKILL)"),
        ("kill -15 $$", None, 15, 143, "signal 15 (SIGTERM)"),
        ("kill -11 $$", None, 11, 139, "signal 11 (SIGSEGV)"),
        ("kill -40 $$", None, 40, 168, "signal 40"),
    ],
)
def test_how_a_worker_ended(
    start: Start, script: str, code: int | None, number: int | None, status: int, text: str
) -> None:
    worker, _ = start("/bin/sh", "-c", script)
    exit = ended(worker)
    assert (exit.code, exit.signal, exit.status, str(exit)) == (code, number, status, text)
    assert worker.poll() == exit, "an exit status can be asked for again"
    assert worker.signal(signal.SIGTERM) is False


def test_a_worker_has_three_descriptors_and_nothing_of_ours(start: Start) -> None:
    inheritable = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(inheritable, True)
    try:
        _, output = start(*PYTHON, "import os; print(*(os.readlink(f'/proc/self/fd/{n}') for n in range(3)))")
        assert read_all(output).startswith(b"/dev/null pipe:")
        # The listing itself is one descriptor, the first free one.
        _, output = start(*PYTHON, "import os; print(*sorted(os.listdir('/proc/self/fd')))")
        assert read_all(output).split() == [b"0", b"1", b"2", b"3"]
    finally:
        os.close(inheritable)


def test_a_worker_starts_with_default_signals_whatever_ours_are(start: Start) -> None:
    old = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        guard = Guard()
        try:
            read, write = os.pipe()
            worker = guard.spawn(["cat", "/proc/self/status"], {MARKER: INCARNATION}, "/", None, write, write, MARKER)
            os.close(write)
            status = dict(line.split(":\t", 1) for line in read_all(read).decode().splitlines() if ":\t" in line)
            os.close(read)
            ended(worker)
            worker.close()
        finally:
            guard.close()
    finally:
        signal.signal(signal.SIGUSR1, old)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    # Signals 32 and 33 belong to the C library, which lets nobody change them.
    assert [int(status[name], 16) & ~(3 << 31) for name in ("SigBlk", "SigIgn", "SigCgt")] == [0, 0, 0]


def test_standard_input_can_be_handed_over(guard: Guard, tmp_path: Path) -> None:
    (tmp_path / "in").write_text("hello")
    with (tmp_path / "in").open() as source, (tmp_path / "out").open("wb") as sink:
        worker = guard.spawn(
            ["cat"], {"PATH": os.environ["PATH"], MARKER: INCARNATION}, "/", source.fileno(), sink.fileno(), 2, MARKER
        )
    assert ended(worker).status == 0
    worker.close()
    assert (tmp_path / "out").read_text() == "hello"


def test_arguments_environment_and_directory_arrive_untouched(start: Start, tmp_path: Path) -> None:
    words = ["", "two words", "'\"$`\\", "new\nline", "\udcff"]
    environ = {"ODD": "a=b\n\udcff", "EMPTY": ""}
    code = "import os,sys; print(ascii((sys.argv[1:], os.environ['ODD'], os.environ['EMPTY'], os.getcwd())))"
    _, output = start(*PYTHON, code, *words, environ=environ, cwd=str(tmp_path))
    assert read_all(output).decode().strip() == ascii((words, environ["ODD"], "", str(tmp_path)))


def test_a_megabyte_of_arguments_and_environment(start: Start) -> None:
    words = ["x" * 1000] * 500
    environ = {f"V{number}": "y" * 1000 for number in range(500)}
    code = (
        "import os,sys; print(sum(map(len, sys.argv[1:])), sum(len(v) for k, v in os.environ.items() if k[0] == 'V'))"
    )
    _, output = start(*PYTHON, code, *words, environ=environ)
    assert read_all(output).split() == [b"500000", b"500000"]


def test_a_program_that_cannot_be_executed_says_why(start: Start, tmp_path: Path) -> None:
    def script(name: str, text: str, mode: int = 0o755) -> str:
        path = tmp_path / name
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    for argv, cwd, words, code in [
        (["no-such-program"], "/", ("'no-such-program'", "not found in PATH"), 127),
        ([str(tmp_path / "none")], "/", ("none", "No such file"), 127),
        ([script("shebang", "#!/no/interpreter\n")], "/", ("first line names '/no/interpreter'",), 127),
        ([script("plain", "echo no\n", 0o644)], "/", ("Permission denied", "chmod +x"), 126),
        ([script("noexec", "echo hi\n")], "/", ("Exec format error", "#!/bin/sh"), 126),
        (["sleep", "1"], str(tmp_path / "gone"), ("gone", "working directory"), 126),
        (["true", "x" * 200_000], "/", ("Argument list too long",), 126),
    ]:
        with pytest.raises(WorkerNotStarted) as caught:
            start(*argv, cwd=cwd)
        assert all(word in str(caught.value) for word in words), caught.value
        assert caught.value.exit_code == code
    worker, _ = start("true")
    assert ended(worker).status == 0, "failures do no harm to the guard"


def test_a_signal_reaches_the_whole_group_or_the_worker_alone(start: Start) -> None:
    script = """
import os, signal
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, name))
name = b"child\\n" if os.fork() == 0 else b"worker\\n"
os.write(1, b"up\\n")
while True:
    signal.pause()
"""
    worker, output = start(*PYTHON, script)
    assert [read_line(output), read_line(output)] == ["up", "up"]
    worker.signal(signal.SIGUSR1, group=False)
    assert read_line(output) == "worker"
    worker.signal(signal.SIGUSR1)
    assert {read_line(output), read_line(output)} == {"worker", "child"}


def test_the_pidfd_tells_of_the_end_without_polling(start: Start) -> None:
    worker, output = start(*PYTHON, "print('up', flush=True); import signal; signal.pause()")
    read_line(output)
    assert select.select([worker], [], [], 0)[0] == []
    worker.signal(signal.SIGTERM)
    assert ended(worker).signal == signal.SIGTERM


def test_a_dead_guard_is_noticed_and_replaced_without_a_worker_noticing(guard: Guard, start: Start) -> None:
    worker, _ = start("sleep", "1000")
    assert select.select([guard], [], [], 0)[0] == []
    old = guard.pid
    os.kill(old, signal.SIGKILL)
    assert select.select([guard], [], [], 30)[0] == [guard]
    second, _ = start("sleep", "1000")
    assert guard.pid != old
    assert alive(worker.pid) and alive(second.pid)
    guard.close()
    assert ended(worker).signal == signal.SIGKILL, "the new guard looks after the workers of the old one"
    assert ended(second).signal == signal.SIGKILL


def test_the_guard_does_not_die_of_what_a_terminal_sends(guard: Guard, start: Start) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGPIPE):
        os.kill(guard.pid, number)
    start("sleep", "1000")
    process = read_process(guard.pid)
    assert process is not None and process.session == guard.pid, "Ctrl-C goes to the foreground group only"


def test_closing_kills_whoever_is_left(start: Start, guard: Guard) -> None:
    worker, output = start("/bin/sh", "-c", "setsid sleep 1000 & echo $!; sleep 1000")
    daemon = int(read_line(output))
    guard.close()
    assert ended(worker).signal == signal.SIGKILL
    eventually(lambda: not alive(daemon))
    guard.sweep()
