"""
Commands with the package kubernetes loaded; see :mod:`tests.jobs.warm`.

A request has ``die``: after how many changes in the cluster the command kills itself, before the next; -1 for never.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from typing import Any

from lattice.jobs.kubernetes.client import Client
from tests.jobs.warm import serve


def prepare(request: Mapping[str, Any]) -> None:
    """Count what a command changes, and let it die in time."""
    left = request["die"]
    real = Client._send

    def send(self: Client, method: str, path: str, *args: Any, **kwargs: Any) -> Any:
        nonlocal left
        changes = method != "GET" and "reviews" not in path
        if changes and left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= changes
        return real(self, method, path, *args, **kwargs)

    setattr(Client, "_send", send)  # noqa: B010 - a method is not assigned to, says mypy


def load() -> None:
    """Load what all commands need."""
    import kubernetes.client
    import kubernetes.config
    import kubernetes.stream

    import lattice.cluster_commands
    import lattice.job_commands

    assert kubernetes.client and kubernetes.config and kubernetes.stream
    assert lattice.cluster_commands and lattice.job_commands


if __name__ == "__main__":
    load()
    serve(prepare)
