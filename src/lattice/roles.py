"""
How a worker finds the workers of other roles of its job.

It knows of nobody in a process that Lattice did not start, so a script may call it anywhere.
"""

from __future__ import annotations

import json
import os
import time

from lattice.core.roles import FILE

__all__ = ["peers"]

PAUSE = 0.05
"""seconds between two looks while waiting"""


class _Listing:
    """What the agent has written last."""

    def __init__(self) -> None:
        self._seen: tuple[str, int, int, int] | None = None
        self._roles: dict[str, list[str]] = {}

    def read(self) -> dict[str, list[str]]:
        path = os.environ.get(FILE, "")
        if not path:
            return {}
        try:
            found = os.stat(path)  # noqa: PTH116 - called often
            seen = (path, found.st_ino, found.st_mtime_ns, found.st_size)
            if seen != self._seen:
                with open(path, encoding="utf-8") as file:  # noqa: PTH123 - of a variable
                    self._roles = json.load(file)
                self._seen = seen
        except (OSError, ValueError):
            pass  # the agent is gone, and so is the file: what was known is still the best guess
        return self._roles


_listing = _Listing()


def peers(role: str, *, at_least: int = 0, timeout: float | None = None) -> list[str]:
    """
    Give the addresses of a role's workers as of now; cheap enough for every step.

    Each is the address of the worker's node with the port that Lattice reserved for that worker, its
    ``LATTICE_WORKER_PORT``: whether it listens there is up to the worker.

    :param role: the name of a role of this job, the worker's own or another
    :param at_least: wait until there are so many
    :param timeout: seconds to wait at most; None for no limit
    :return: ``host:port`` of each, by rank; empty outside of a job, where nobody is waited for
    :raises ValueError: the job has no such role
    :raises TimeoutError: there were not enough of them in time
    """
    if not os.environ.get(FILE):
        return []
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        roles = _listing.read()
        if roles and role not in roles:
            raise ValueError(
                f"the job has no role {role!r}; it has {', '.join(roles)} (--job_roles, LATTICE_JOB_ROLES)."
            )
        found = roles.get(role, [])
        if len(found) >= at_least:
            return list(found)
        if until is not None and time.monotonic() >= until:
            there = f": {', '.join(found)}" if found else ""
            raise TimeoutError(f"role {role!r}: {len(found)} of at least {at_least} workers in {timeout:g}s{there}.")
        time.sleep(PAUSE)
