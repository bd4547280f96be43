"""What only the workers of one job know, whatever their role: written here by the agent, read by :mod:`lattice.rl`."""

from __future__ import annotations

import hashlib
import hmac

from lattice.core.roles import KEY
from lattice.core.spec import JobSpec, StoreSpec


def job_variables(job: JobSpec, store: StoreSpec) -> dict[str, str]:
    """
    Give workers of all roles a common secret.

    It is made from the store's password, which all agents of a job share, and tells nothing about it.

    :return: nothing outside of a job, or if the store has no password
    """
    if not job.id or not store.password:
        return {}
    return {KEY: hmac.digest(store.password.encode(), f"lattice job {job.id}".encode(), hashlib.sha256).hex()}
