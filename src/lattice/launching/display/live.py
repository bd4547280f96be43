"""Lines at the bottom of a terminal that are drawn again and again, below whatever else is written there."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Sequence
from typing import Any, TextIO, cast

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lattice.launching.display.lines import Line

STYLES = {"good": "green", "busy": "", "bad": "red"}


class Live:
    """
    Draws lines on a terminal.

    The cursor is never hidden, and stands at the beginning of the line below ours: whatever ends this process leaves
    a terminal that can be used. While lines are shown, ``sys.stdout`` and ``sys.stderr`` are stood in for, so that
    what is printed or logged appears above them, whole. Whoever asks those for their descriptor means to write past
    us, as prompts do: then the lines are taken away for good.
    """

    def __init__(self, stream: TextIO) -> None:
        """
        Begin without lines.

        :param stream: of a terminal
        """
        self._stream = stream
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._lock = threading.RLock()
        self._lines: list[Line] = []
        self._width = 0
        self._text = ""
        self._drawn: list[int] = []
        self._within_line = False
        self._closed = False
        self._stand_ins: dict[str, tuple[Any, Any]] = {}

    @property
    def usable(self) -> bool:
        """Whether this terminal can move its cursor."""
        return not self._console.is_dumb_terminal

    @property
    def height(self) -> int:
        """How many lines there is room for: half of the terminal is for what is printed."""
        return max(self._console.height // 2, 1)

    @property
    def rows(self) -> int:
        """How many lines the terminal has."""
        return self._console.height

    def show(self, lines: Sequence[Line]) -> None:
        """Draw lines in place of those that were there."""
        with self._lock:
            if self._closed:
                return
            if not self._stand_ins:
                self._stand_in()
            # One cell is left free: some terminals begin a new line as soon as the last one is full.
            width = max(self._console.width - 1, 1)
            if (lines, width) != (self._lines, self._width):
                self._lines, self._width = list(lines), width
                self._text = "".join(f"{self._render(line)}\x1b[K\n" for line in lines)
                self._draw()
            elif not self._drawn:
                self._draw()

    def write_above(self, stream: TextIO, text: str) -> int:
        """Write something that is not ours where our lines are, and draw them below it again."""
        with self._lock:
            self._erase()
            count = stream.write(text)
            stream.flush()
            if text:
                self._within_line = not text.endswith("\n")
            if not self._closed:
                self._draw()
            return count

    def leave(self) -> None:
        """Let our lines stand, and leave the terminal to others."""
        with self._lock:
            if not self._closed:
                self._put("\r\x1b[J")  # what was typed, such as Ctrl-C, is shown below them
            self._drawn = []
            self.close()

    def close(self) -> None:
        """Take our lines away, and leave the terminal to others."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for name, (real, ours) in self._stand_ins.items():
                if getattr(sys, name) is ours:
                    setattr(sys, name, real)
                _redirect(ours, real)
            self._erase()

    def _stand_in(self) -> None:
        for name in ("stdout", "stderr"):
            real = getattr(sys, name)
            if real is not None and real.isatty():
                ours = _Above(real, self)
                self._stand_ins[name] = (real, ours)
                setattr(sys, name, ours)
                _redirect(real, ours)

    def _render(self, line: Line) -> str:
        with self._console.capture() as capture:
            text = Text(line.text, style=STYLES[line.tone], no_wrap=True, overflow="ellipsis")
            self._console.print(text, width=self._width, end="")
        return capture.get()

    def _draw(self) -> None:
        if self._within_line:  # a prompt perhaps: its line is its own until it ends
            return
        up = f"\r\x1b[{self._rows()}A" if self._drawn else ""
        self._put(f"{up}{self._text}\x1b[J")
        self._drawn = [min(cell_len(line.text), self._width) for line in self._lines]

    def _erase(self) -> None:
        if self._drawn:
            self._put(f"\r\x1b[{self._rows()}A\x1b[J")
            self._drawn = []

    def _rows(self) -> int:
        """Count the rows that our lines take: in a window that was made narrower, more than there are lines."""
        width = max(self._console.width, 1)
        return sum(max(-(-cells // width), 1) for cells in self._drawn)

    def _put(self, text: str) -> None:
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        try:
            self._stream.write(text.encode(encoding, "replace").decode(encoding))
            self._stream.flush()
        except (OSError, ValueError):
            pass  # the terminal is gone


def _redirect(old: Any, new: Any) -> None:
    """Let handlers of ``logging`` that hold a stream hold another: most are made long before a launch."""
    for reference in list(logging._handlerList):  # type: ignore[attr-defined]
        handler = reference()
        if isinstance(handler, logging.StreamHandler) and handler.stream is old:
            handler.setStream(new)


class _Above:
    """Stands in for a stream of the terminal: what is written to it appears above our lines."""

    def __init__(self, stream: TextIO, live: Live) -> None:
        self._stream = stream
        self._live = live

    def write(self, text: str) -> int:
        return self._live.write_above(self._stream, text)

    def writelines(self, lines: Sequence[str]) -> None:
        self.write("".join(lines))

    def fileno(self) -> int:
        self._live.close()
        return self._stream.fileno()

    @property
    def buffer(self) -> Any:
        self._live.close()
        return cast(Any, self._stream).buffer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
