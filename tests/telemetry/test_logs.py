from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lattice.telemetry.console import Console
from lattice.telemetry.logfile import LogFile
from lattice.telemetry.logs import GATHERING, PIPE_SIZE, READ_SIZE, TAIL_SIZE, LogPump, Tails, gathering, open_pipe
from tests.waiting import eventually, patience


class Shown(Console):
    """A console that remembers."""

    def __init__(self) -> None:
        self.text = bytearray()
        self.said: list[str] = []
        self.hold = threading.Event()
        self.hold.set()

    def show(self, stream: str, text: bytes, lines: int, source: str) -> None:
        assert text.endswith(b"\n") and text.count(b"\n") == lines
        self.hold.wait()
        self.text += text

    @property
    def lines(self) -> list[bytes]:
        return bytes(self.text).split(b"\n")[:-1]

    def say(self, text: str, prefix: str = "", *, routine: bool = False) -> None:
        self.said.append(text)


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def pump(shown: Shown) -> Iterator[LogPump]:
    pump = LogPump(shown, progress_interval=0.05)
    yield pump
    pump.close()


def test_bytes_reach_file_tail_and_console(pump: LogPump, shown: Shown, tmp_path: Path) -> None:
    path = tmp_path / "run" / "round_1" / "0" / "stdout"
    read, write = open_pipe()
    pump.add("a", "stdout", read, str(path), "[0] ")
    text = b"one\n\xff\xfe two\nprogress 1%\rprogress 2%\nunfinished"
    os.write(write, text)
    os.close(write)
    tails = pump.drain("a")
    assert (tails.stdout, tails.stderr, tails.complete) == (text, b"", True)
    assert path.read_bytes() == text
    assert shown.lines == [b"[0] one", b"[0] \xff\xfe two", b"[0] progress 2%", b"[0] unfinished"]


def test_files_are_appended_to_and_may_be_all_there_is(pump: LogPump, shown: Shown, tmp_path: Path) -> None:
    path = tmp_path / "stderr"
    path.write_bytes(b"earlier\n")
    read, write = open_pipe()
    pump.add("a", "stderr", read, str(path), None)
    os.write(write, b"later\n")
    os.close(write)
    assert pump.drain("a").stderr == b"later\n"
    assert path.read_bytes() == b"earlier\nlater\n"
    assert shown.lines == []


def test_a_worker_without_output_has_an_empty_file(pump: LogPump, tmp_path: Path) -> None:
    read, write = open_pipe()
    pump.add("a", "stdout", read, str(tmp_path / "quiet"), None)
    os.close(write)
    pump.drain("a")
    assert (tmp_path / "quiet").read_bytes() == b""


def test_the_tail_is_the_end(pump: LogPump, tmp_path: Path) -> None:
    read, write = open_pipe()
    pump.add("a", "stderr", read, str(tmp_path / "log"), None)
    text = b"".join(b"line %d\n" % number for number in range(100_000))
    with os.fdopen(write, "wb") as pipe:
        pipe.write(text)
    tails = pump.drain("a")
    assert tails.stderr == text[-TAIL_SIZE:]
    assert (tmp_path / "log").read_bytes() == text


def test_a_flood_of_real_workers_loses_not_one_line(pump: LogPump, shown: Shown, tmp_path: Path) -> None:
    program = "for number in range(200_000): print('a line of worker', WHO, number)\nprint('no end', end='')"
    workers = []
    for who in range(2):
        read, write = open_pipe()
        pump.add(who, "stdout", read, str(tmp_path / str(who)), f"[{who}] ")
        workers.append(subprocess.Popen([sys.executable, "-c", program.replace("WHO", str(who))], stdout=write))
        os.close(write)
    for who, worker in enumerate(workers):
        assert worker.wait(patience(60)) == 0
        assert pump.drain(who, within=30).stdout.endswith(b"199999\nno end")
        written = "".join(f"a line of worker {who} {number}\n" for number in range(200_000)) + "no end"
        assert ((tmp_path / str(who)).read_text() == written) is True, "the file differs"
        mine = [line[4:] for line in shown.lines if line.startswith(b"[%d] " % who)]
        assert (b"\n".join(mine) == written.encode()) is True, "the console differs"


def test_many_lines_are_read_at_once(pump: LogPump, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line, count, sizes, read_once = b"x" * 60 + b"\n", 20_000, list[int](), pump._read

    def counted(stream: Any) -> int:
        sizes.append(read_once(stream))
        return sizes[-1]

    monkeypatch.setattr(pump, "_read", counted)
    read, write = open_pipe()
    pump.add("a", "stdout", read, str(tmp_path / "log"), None)
    pause = gathering(fcntl.fcntl(write, fcntl.F_GETPIPE_SZ), 1)
    began = time.monotonic()
    for _ in range(count):
        os.write(write, line)
    os.close(write)
    eventually(lambda: sum(sizes) == count * len(line))
    # After each that was not full the pump left the pipe alone for a while, but for the one time that it was called.
    assert len([size for size in sizes if 0 < size < READ_SIZE]) <= (time.monotonic() - began) / pause + 2


def test_a_pipe_is_left_alone_for_as_long_as_it_has_room() -> None:
    assert gathering(PIPE_SIZE, 1) == gathering(PIPE_SIZE, PIPE_SIZE // 4 - 1) == GATHERING
    assert gathering(PIPE_SIZE, PIPE_SIZE // 4) == gathering(8 * PIPE_SIZE, READ_SIZE) == 0
    small = 64 << 10
    assert 0 < gathering(small, small // 4 - 1) <= GATHERING / 10
    assert gathering(small, small // 4) == 0


def test_nobody_waits_for_a_pipe_to_fill(pump: LogPump, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lattice.telemetry.logs.GATHERING", 1000.0)
    read, write = open_pipe()
    pump.add("a", "stdout", read, str(tmp_path / "log"), None)
    os.write(write, b"first\n")
    log = tmp_path / "log"
    eventually(lambda: log.exists() and log.read_bytes() == b"first\n")
    os.write(write, b"last\n")
    os.close(write)
    assert pump.drain("a", within=60) == Tails(stdout=b"first\nlast\n")
    pump.forget("a")


def test_a_flooding_worker_does_not_starve_another(pump: LogPump, shown: Shown, tmp_path: Path) -> None:
    read, write = open_pipe()
    pump.add("loud", "stdout", read, "/dev/null", None)
    loud = subprocess.Popen(["cat", "/dev/zero"], stdout=write)
    os.close(write)
    try:
        eventually(lambda: len(pump.drain("loud").stdout) == TAIL_SIZE)
        read, write = open_pipe()
        pump.add("quiet", "stdout", read, str(tmp_path / "quiet"), "")
        os.write(write, b"hello\n")
        eventually(lambda: shown.lines == [b"hello"])
        assert pump.drain("quiet").stdout == b"hello\n"
        pump.forget("loud")
        os.close(write)
    finally:
        loud.kill()
        loud.wait()


def test_a_drain_ends_although_the_pipe_is_never_empty(
    pump: LogPump, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = open_pipe()
    pump.add("a", "stdout", read, str(tmp_path / "log"), None)
    monkeypatch.setattr(pump, "_read", lambda stream: 4096)  # whoever writes is always faster
    assert pump.drain("a", within=30).complete
    os.close(write)


def test_a_child_that_keeps_the_pipe_open_holds_nobody_up(pump: LogPump, tmp_path: Path) -> None:
    read, write = open_pipe()
    pump.add("a", "stdout", read, str(tmp_path / "log"), None)
    script = "sleep 1000 & echo $!; echo last words"
    worker = subprocess.Popen(["/bin/sh", "-c", script], stdout=write)
    os.close(write)
    assert worker.wait(patience(30)) == 0
    child, rest = pump.drain("a").stdout.split(b"\n", 1)
    try:
        assert rest == b"last words\n"
        pump.forget("a")
        eventually(lambda: not pump.drain("a").stdout)
    finally:
        os.kill(int(child), 9)


def test_an_unfinished_progress_bar_is_shown_now_and_then(pump: LogPump, shown: Shown, tmp_path: Path) -> None:
    read, write = open_pipe()
    pump.add("a", "stderr", read, str(tmp_path / "log"), "[0] ")
    os.write(write, b"\r 10%")
    eventually(lambda: shown.lines == [b"[0]  10%"])
    os.write(write, b"\r 20%")
    eventually(lambda: shown.lines[-1] == b"[0]  20%")
    os.close(write)
    pump.drain("a")
    assert (tmp_path / "log").read_bytes() == b"\r 10%\r 20%"


def test_a_drain_has_a_deadline(pump: LogPump, shown: Shown, tmp_path: Path) -> None:
    shown.hold.clear()
    read, write = open_pipe()
    pump.add("a", "stdout", read, str(tmp_path / "log"), "")
    os.write(write, b"stuck\n")
    os.close(write)
    assert pump.drain("a", within=0.1).complete is False
    shown.hold.set()
    assert pump.drain("a").stdout == b"stuck\n"


def test_a_full_disk_costs_bytes_but_not_the_training(shown: Shown, tmp_path: Path) -> None:
    pump = LogPump(shown, retry_interval=0.01)
    path = tmp_path / "log"
    path.symlink_to("/dev/full")
    read, write = open_pipe()
    pump.add("a", "stdout", read, str(path), "")
    lost = b"lost\n" * 100_000
    with os.fdopen(write, "wb", closefd=False) as pipe:
        pipe.write(lost)
    eventually(lambda: len(shown.lines) == 100_000)
    assert pump.drain("a").stdout == lost[-TAIL_SIZE:]
    assert pump.lost_bytes == {"a": len(lost)}
    assert len(shown.said) == 1, "said once"
    assert all(word in shown.said[0] for word in (str(path), "No space left", "--log_dir (LATTICE_LOG_DIR)"))

    (tmp_path / "real").touch()
    (tmp_path / "real").replace(path)

    def written_again() -> bool:
        os.write(write, b"more\n")
        return path.read_bytes().endswith(b"more\n")

    eventually(written_again)
    os.close(write)
    pump.close()
    assert f"[lattice] {pump.lost_bytes['a']} bytes are missing here: No space left" in path.read_text()
    assert f"{pump.lost_bytes['a']} bytes are missing" in shown.said[1]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_really_full_disk_that_gets_room_again(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.call(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)], stderr=subprocess.DEVNULL) != 0:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        (disk / "filler").write_bytes(b"x" * 40_000)
        file = LogFile(str(disk / "log"), retry_interval=0.0)
        file.write(b"y" * 100_000)
        written = (disk / "log").stat().st_size
        assert 0 < written < 40_000 and file.lost == 100_000 - written and "No space left" in file.failure
        (disk / "filler").unlink()
        file.write(b"again\n")
        assert not file.failure
        assert (disk / "log").read_bytes()[written:].splitlines()[1:] == [
            f"[lattice] {file.lost} bytes are missing here: No space left on device".encode(),
            b"again",
        ]
        file.close()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_folder_that_cannot_be_made_is_said_too(pump: LogPump, shown: Shown, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    read, write = open_pipe()
    pump.add("a", "stdout", read, str(tmp_path / "file" / "log"), "")
    os.write(write, b"shown\n")
    os.close(write)
    assert pump.drain("a").stdout == b"shown\n"
    assert shown.lines == [b"shown"]
    assert "File exists" in shown.said[0]
    assert pump.lost_bytes == {"a": 6}
