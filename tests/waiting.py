"""Wait for a condition with a deadline: the only way in which a test may wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(condition: Callable[[], T], within: float = 30.0) -> T:
    """
    Call a condition until it holds.

    :param condition: tells whether it holds by any true value; an AssertionError counts as no
    :param within: seconds after which the test fails; generous, because machines are busy
    :return: the true value
    """
    deadline = time.monotonic() + within
    pause = 0.001
    while True:
        failure: AssertionError | None = None
        result: T | None = None
        try:
            result = condition()
        except AssertionError as error:
            failure = error
        if result:
            return result
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {within:g}s (last answer: {result!r})") from failure
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def pass_time(seconds: float) -> None:
    """Let a fault last: not to wait for anything, but to see what happens, or that nothing does."""
    time.sleep(seconds)
