"""The kinds of nodes that a job has on AWS: one for each role, or one for all. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from lattice.errors import UsageError
from lattice.jobs.aws.specs import DESIRED, RDZV, WORKER, Specs, WorkerSpec, of_type
from lattice.jobs.aws.userdata import CodeAt
from lattice.jobs.job import EACH, Job, Role
from lattice.jobs.orders import part_of, program_words
from lattice.jobs.roles import ends_job, run_id, seats_of, time_to_save


@dataclass(frozen=True, slots=True)
class Section:
    """Instances of a group, which all do the same."""

    name: str
    spec: WorkerSpec
    begins: int
    """how many there are at first"""
    most: int
    role: Role | None = None
    """None if the job has no roles"""
    ends: str = "always"
    """when the end of its run is the job's, see :func:`lattice.jobs.roles.ends_job`"""


def sections(job: Job, specs: Specs) -> tuple[Section, ...]:
    """
    Give the kinds of nodes, the primary one first.

    :raises UsageError: a role cannot be had
    """
    if not job.roles:
        begins = int(job.place_options.get(DESIRED, job.size.maximum))
        return (Section(WORKER, specs.worker, begins, job.size.maximum),)
    return tuple(_of_role(job, specs, role) for role in job.roles)


def names(job: Job) -> tuple[str, ...]:
    """Name them."""
    return tuple(role.name for role in job.roles) or (WORKER,)


def order(job: Job, submission: str, section: Section, code: CodeAt) -> bytes:
    """Write what each node is told; it goes to S3, as variables may be secret, and user data is short."""
    told: dict[str, Any] = {
        "image": section.spec.docker_image,
        "gpus": section.spec.accelerator == "gpu",
        "code": asdict(code),
        "arguments": list(job.arguments),
        "nnodes": str(job.size),
        "run_options": dict(job.run_options),
        "environment": dict(job.environment),
    }
    if section.role is not None:
        told |= _told(job, submission, section.role, code)
    return json.dumps(told, indent=1).encode()


def facts(job: Job, section: Section) -> Mapping[str, Any]:
    """Give what the user data of a role's instances say besides."""
    if section.role is None:
        return {}
    # Whoever ends the job lets the other roles' workers save before their instances go.
    return {"role": section.name, "ends_job": section.ends, "grace": max(time_to_save(role) for role in job.roles)}


def _of_role(job: Job, specs: Specs, role: Role) -> Section:
    if role.name == RDZV:
        raise UsageError(f"on aws no role can be called {RDZV}: that is the group of etcd's instance")
    spec = of_type(specs.worker, role.place_options.get("instance_type", ""), role.name)
    return Section(role.name, spec, role.size.maximum, role.size.maximum, role, ends_job(job, role))


def _told(job: Job, submission: str, role: Role, code: CodeAt) -> dict[str, Any]:
    first, *more = program_words(job, role)
    seat = seats_of(job, role)[0]
    # Instances have no numbers: each that is a run by itself names it after its own id.
    each = role.group == EACH
    return {
        "code": asdict(replace(code, script="" if role.command else first)),
        "command": [first] if role.command else [],
        "arguments": more,
        "nnodes": str(seat.nodes),
        "rdzv_id": f"{submission}.{role.name}" if each else run_id(submission, seat),
        "each": each,
        "run_options": {**dict(role.run_options), **part_of(job, submission, role)},
        "environment": dict(role.environment),
    }
