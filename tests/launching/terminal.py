"""A program in a terminal of its own, and the screen as its user sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyte

from tests.waiting import eventually


class Terminal:
    """What a program has written so far, as bytes and as a screen."""

    def __init__(self, process: subprocess.Popen[bytes], master: int, columns: int, lines: int) -> None:
        self.process = process
        self.written = b""
        self._master = master
        self._screen = pyte.HistoryScreen(columns, lines, history=100_000)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._thread.start()

    @property
    def screen(self) -> list[str]:
        """The lines on the screen, without empty ones at the end."""
        with self._lock:
            return "\n".join(line.rstrip() for line in self._screen.display).rstrip("\n").split("\n")

    @property
    def all(self) -> list[str]:
        """The lines that went off the screen at the top, and those on it."""
        with self._lock:
            above = [
                "".join(line[column].data for column in range(self._screen.columns)).rstrip()
                for line in self._screen.history.top
            ]
            return above + self.screen

    @property
    def cursor_is_shown(self) -> bool:
        with self._lock:
            return not self._screen.cursor.hidden

    @property
    def column(self) -> int:
        with self._lock:
            return self._screen.cursor.x

    def shows(self, text: str) -> bool:
        return any(text in line for line in self.screen)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        with self._lock:
            self._screen.resize(lines, columns)
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def end(self, within: float = 60.0) -> int:
        """Wait until the program has ended and all that it wrote is on the screen."""
        code = self.process.wait(within)
        self._thread.join(within)
        return code

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # EIO: nobody has the other end open any more
                return
            with self._lock:
                self.written += data
                self._stream.feed(data)


@contextmanager
def terminal(
    script: str,
    folder: Path,
    *,
    columns: int = 100,
    lines: int = 24,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Terminal]:
    """
    Run a Python script in a terminal.

    :param script: its text
    :param folder: where it and its logs go
    :param columns: of the terminal
    :param lines: of the terminal
    :param environ: variables besides those of this process; those of rich and of terminals are not taken over
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    path = folder / "script.py"
    path.write_text(script)
    strange = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "CI", "COLORTERM")
    kept = {name: value for name, value in os.environ.items() if name not in strange}
    variables = {**kept, "TERM": "xterm-256color", "LATTICE_LOG_DIR": str(folder / "logs"), **(environ or {})}
    # setsid: Ctrl-C means whoever the terminal belongs to.
    process = subprocess.Popen(
        ["setsid", "--ctty", sys.executable, str(path)],
        stdin=slave, stdout=slave, stderr=slave, cwd=folder, env=variables,
    )  # fmt: skip
    os.close(slave)
    shown = Terminal(process, master, columns, lines)
    try:
        yield shown
    finally:
        process.kill()
        process.wait()
        eventually(lambda: not shown._thread.is_alive(), within=60)
        os.close(master)
