"""Wait for a condition with a deadline: the only way in which a test may wait."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

VARIABLE = "LATTICE_TEST_PATIENCE"
"""the factor by which all deadlines of tests are longer: 1, or more on a machine that is slow or busy"""


def patience(seconds: float) -> float:
    """
    Return a deadline, scaled for this machine.

    :param seconds: what a busy machine with two cores needs at most
    """
    return seconds * float(os.environ.get(VARIABLE) or 1)


def eventually(condition: Callable[[], T], within: float = 30.0) -> T:
    """
    Call a condition until it holds.

    :param condition: holds if it returns a true value; an AssertionError counts as false
    :param within: seconds after which the test fails, before they are scaled; generous, because machines are busy
    :return: the true value
    """
    within = patience(within)
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
            raise AssertionError(f"not within {within:g}s (last answer: {result!r}). {_load()}") from failure
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _load() -> str:
    """Describe how busy the machine is: a deadline that was missed under load is not yet a hang."""
    load = os.getloadavg()[0]
    return f"The load was {load:.1f} on {os.cpu_count()} cores; {VARIABLE}=3 makes all deadlines 3 times longer."


def pass_time(seconds: float) -> None:
    """Let a fault last: not to wait for anything, but to see what happens, or that nothing does."""
    time.sleep(seconds)
