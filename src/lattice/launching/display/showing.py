"""Shows how a launch stands for as long as somebody waits for it: live, in plain lines, or not at all."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from lattice.launching.display.lines import PlainLines, block
from lattice.launching.display.states import HostStatus
from lattice.launching.settings import Progress

if TYPE_CHECKING:
    from lattice.launching.display.live import Live

QUIET = 1.0
"""seconds of a launch in which nothing is shown: many take no longer"""
INTERVAL = 0.2
"""seconds between two looks"""
PATIENCE = 5.0
"""seconds that a terminal has to take the last that is written to it"""
_shown = threading.Lock()
"""held by the one launch that is shown: several at once would write over each other"""


@contextmanager
def shown(
    hosts: Callable[[], Sequence[HostStatus]], progress: Progress, plain: PlainLines | None = None
) -> Iterator[None]:
    """
    Show how hosts stand, until the block is left in any way.

    :param hosts: tells how they stand
    :param progress: whether to; auto for only if it takes a while
    :param plain: what was told before, by whoever waits for the same again
    """
    if progress is False or not _shown.acquire(blocking=False):
        yield
        return
    display = _Display(hosts, plain or PlainLines(), 0.0 if progress is True else QUIET)
    try:
        with _terminated(display.close):
            yield
    finally:
        display.close()
        _shown.release()


class _Display:
    """A thread that looks at the hosts."""

    def __init__(self, hosts: Callable[[], Sequence[HostStatus]], plain: PlainLines, quiet: float) -> None:
        self._hosts = hosts
        self._plain = plain
        self._quiet = quiet
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, name="lattice display", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take away what is shown."""
        self._done.set()
        self._thread.join(PATIENCE)

    def _work(self) -> None:
        if self._done.wait(self._quiet):
            return
        live = live_on(sys.stderr)
        try:
            while True:
                now, hosts = time.monotonic(), self._hosts()
                if live is not None:
                    live.show(block(hosts, now, live.height))
                else:
                    for line in self._plain.due(hosts, now):
                        print(f"[lattice] {line}", file=sys.stderr, flush=True)
                if self._done.wait(INTERVAL):
                    return
        except (OSError, ValueError):
            pass  # standard error is gone: there is nobody to show anything to
        finally:
            if live is not None:
                live.close()


def live_on(stream: TextIO | None) -> Live | None:
    """Give a terminal, if the stream is of one that lines can be drawn on, and what draws them is installed."""
    if stream is None or not stream.isatty():
        return None
    try:
        from lattice.launching.display.live import Live
    except ImportError:
        return None
    live = Live(stream)
    return live if live.usable else None


@contextmanager
def _terminated(close: Callable[[], None]) -> Iterator[None]:
    """Clean up before SIGTERM ends this process, unless somebody else decides what it does."""
    alone = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if not alone:
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        close()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
