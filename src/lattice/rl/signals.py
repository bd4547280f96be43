"""SIGTERM and SIGINT as a question that a loop can ask."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Tell whether a signal has asked this process to stop; outside of the main thread it never has."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def heard(number: int, frame: FrameType | None) -> None:
        asked.set()

    before = {number: signal.signal(number, heard) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
