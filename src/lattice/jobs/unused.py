"""What a job says that has no purpose where it runs: a file for a cluster can be tried on a laptop first. Pure."""

from __future__ import annotations

from lattice.jobs.job import Job, Role
from lattice.jobs.options import RESOURCES


def without_containers(job: Job) -> str:
    """Say what of a job's roles only a place with containers knows; nothing if there is nothing of the kind."""
    found = [f"{', '.join(names)} of {role.name}" for role in job.roles if (names := _contained(role))]
    return f"without purpose on {job.place}, for only kubernetes has it: {'; '.join(found)}" if found else ""


def _contained(role: Role) -> list[str]:
    wanted = [option.name for option in RESOURCES if option.name in role.place_options]
    return sorted([*wanted, *(["sidecars"] if role.sidecars else []), *(["volumes"] if role.volumes else [])])
