"""Jobs on hosts that you hold, over SSH with your own configuration."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lattice.jobs.backends.hosts import HostsBackend
from lattice.jobs.calls import There
from lattice.jobs.job import Job
from lattice.launching.transports import transport


def make() -> HostsBackend:
    """Make the backend."""
    return HostsBackend("ssh", _hosts, _way)


def _hosts(job: Job) -> Sequence[str]:
    return tuple(host for host in job.place_options.get("hosts", "").split(",") if host)


def _way(job: Job) -> There:
    program = (job.place_options.get("python") or sys.executable, "-m", "lattice.jobs.node")
    return There(transport("ssh", program, job.place_options.get("ssh_config_file") or None))
