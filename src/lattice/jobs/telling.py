"""Tells the user how far something is, without a line for each step of it."""

from __future__ import annotations

import re
import shutil
import time
from typing import TextIO

INTERVAL = 10.0
"""seconds between two lines about the same thing, where lines cannot be replaced"""


class Teller:
    """
    Writes lines. One that differs from the last only in its numbers is about the same thing: on a terminal it takes
    that one's place, elsewhere it is written only now and then.

    :param stream: where to
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._thing = ""
        self._told = 0.0

    def __call__(self, text: str) -> None:
        """Say something."""
        thing, now = re.sub(r"[\d.]+", "0", text), time.monotonic()
        same, self._thing = thing == self._thing, thing
        if same and not self._terminal and now < self._told + INTERVAL:
            return
        self._told = now
        line, again = f"lattice: {text}", ""
        if self._terminal:
            width = shutil.get_terminal_size().columns
            replaceable = same and len(line) < width
            again = "\x1b[A\r\x1b[K" if replaceable else ""
            self._thing = thing if len(line) < width else ""  # of a line that is broken in two only half would go
        print(f"{again}{line}", file=self._stream, flush=True)
