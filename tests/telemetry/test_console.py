from __future__ import annotations

import os
import pty
import re
import threading
import time
from collections.abc import Iterator

import pytest

from lattice.telemetry.console import Console
from tests.waiting import eventually, patience

LINE = b"x" * 99 + b"\n"


class Reader:
    """The other end of a console: reads only while it is asked to."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()
        self.text = b""
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while part := os.read(self.read_end, 65536):
            self.text += part

    def finish(self) -> bytes:
        os.close(self.write_end)
        if not self._thread.ident:
            self.start()
        self._thread.join()
        os.close(self.read_end)
        return self.text


@pytest.fixture
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    if not reader._thread.ident:
        reader.finish()


def test_what_is_said_and_shown_comes_out_in_order(reader: Reader) -> None:
    reader.start()
    console = Console(reader.write_end, reader.write_end)
    console.show("stdout", b"[0] one\n", 1, "log")
    console.say("two\nlines")
    console.show("stderr", b"[1] three\n", 1, "log")
    console.close()
    assert reader.finish() == b"[0] one\nlattice: two\nlattice: lines\n[1] three\n"


def test_standard_output_and_error_are_kept_apart(reader: Reader) -> None:
    other = Reader()
    other.start()
    reader.start()
    console = Console(reader.write_end, other.write_end)
    console.show("stdout", b"out\n", 1, "log")
    console.show("stderr", b"err\n", 1, "log")
    console.say("hello")
    console.close()
    assert (reader.finish(), other.finish()) == (b"out\n", b"err\nlattice: hello\n")


def test_lines_of_many_threads_are_never_mixed(reader: Reader) -> None:
    reader.start()
    console = Console(reader.write_end, reader.write_end)

    def write(number: int) -> None:
        for _ in range(200):
            console.show("stdout", b"%d" % number * 1000 + b"\n", 1, "log")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    console.close()
    lines = reader.finish().splitlines()
    assert len(lines) == 1000
    assert all(len(line) == 1000 and len(set(line)) == 1 for line in lines)


def test_a_console_that_nobody_reads_holds_nobody_up_and_tells_what_is_missing(reader: Reader) -> None:
    console = Console(reader.write_end, reader.write_end, limit=100_000, patience=0.2)
    began = time.monotonic()
    for _ in range(10_000):
        console.show("stdout", LINE, 1, "/logs/0/stdout")
    assert time.monotonic() - began < patience(20), "all patience together is 0.2s"
    console.say("the agent is never left out")
    reader.start()
    eventually(lambda: b"not shown" in reader.text)
    console.show("stdout", b"it flows again\n", 1, "log")
    console.close()
    text = reader.finish()
    note = re.search(rb"^\[lattice\] (\d+) lines not shown here, see /logs/0/stdout$", text, re.MULTILINE)
    assert note is not None
    assert text.count(LINE) + int(note[1]) == 10_000
    assert set(text.splitlines(keepends=True)) - {LINE} == {
        b"lattice: the agent is never left out\n",
        note[0] + b"\n",
        b"it flows again\n",
    }


def test_a_stopped_terminal_holds_nobody_up() -> None:
    controller, terminal = pty.openpty()
    console = Console(terminal, terminal, limit=50_000, patience=0.1)
    for _ in range(5_000):
        console.show("stdout", LINE, 1, "log")
    console.say("the end")
    closer = threading.Thread(target=console.close, args=(0.5,))
    closer.start()
    closer.join(patience(30))
    assert not closer.is_alive(), "the end does not wait for a terminal for ever"
    text = b""
    while b"the end" not in text or b"lines not shown here" not in text:  # both come through once somebody reads
        text += os.read(controller, 65536)
    os.close(controller)
    os.close(terminal)


def test_a_reader_that_left_makes_the_console_silent() -> None:
    read, write = os.pipe()
    os.close(read)
    console = Console(write, write, limit=1000, patience=60)
    for _ in range(1000):
        console.show("stdout", LINE, 1, "log")
    console.say("nobody hears this")
    console.close()
    os.close(write)


def test_a_descriptor_that_others_made_nonblocking(reader: Reader) -> None:
    os.set_blocking(reader.write_end, False)
    console = Console(reader.write_end, reader.write_end)
    for _ in range(3000):
        console.show("stdout", LINE, 1, "log")
    reader.start()
    console.close(30)
    assert reader.finish().count(LINE) == 3000


def test_closed_standard_descriptors_are_no_reason_to_fail() -> None:
    read, write = os.pipe()
    os.close(read)
    os.close(write)
    console = Console(write, write)
    console.say("nothing")
    console.close()
