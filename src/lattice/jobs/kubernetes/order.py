"""What the nodes of a role are told: the words of their agents' command lines. Pure."""

from __future__ import annotations

from typing import Any

from lattice.jobs.aws.userdata import SERVER_NAME, CodeAt
from lattice.jobs.job import Job, Role
from lattice.jobs.kubernetes.names import JobNames
from lattice.jobs.orders import part_of, program_words
from lattice.jobs.roles import ends_job, roles, run_id, seats, seats_of

TOLD = "/etc/lattice"
"""where the pods find what they are told"""
WORK = "/lattice"
"""a folder of the pod's own: code, journal, logs of workers"""
CODE = f"{WORK}/code"
PORT = 2379
SHARED = "lattice-rdzv-client.lattice"
"""the Service of the etcd that ``lattice install`` makes for all jobs of a cluster"""
PATIENCE = "connect_timeout=1800,join_timeout=1800,store_grace=900"
"""how long agents wait for pods to come, and workers go on without etcd: until its pod is replaced"""
NOT_OF_AGENTS = ("rdzv_backend", "rdzv_endpoint", "rdzv_conf")


def has_store(job: Job) -> bool:
    """Tell whether the nodes of a job have to meet: one alone needs nobody."""
    return bool(job.roles) or job.size.maximum > 1


def own_store(job: Job, *, shared: bool) -> bool:
    """
    Tell whether a job gets an etcd of its own.

    :param shared: whether there is one for all in the cluster
    """
    return has_store(job) and not shared and not _given(job, "rdzv_endpoint")


def orders(names: JobNames, role: Role, code: CodeAt, *, keep_for: float, shared: bool = False) -> dict[str, Any]:
    """
    Give what the nodes of a role are told.

    :param names: of the job's objects
    :param role: the role
    :param code: where it is
    :param keep_for: seconds that pods stay after the end
    :param shared: whether they meet at the etcd that the cluster has for all
    """
    job = names.job
    return {
        "submission": names.submission,
        "role": role.name,
        "options": {**_options(names, role), **_meeting(names, role, keep_for, shared=shared)},
        "words": list(program_words(job, role)),
        "environment": dict(role.environment),
        "folder": CODE if job.code.upload else "",
        "code": {"url": code.url, "digest": code.digest, "archive": code.archive, "script": code.script},
        "seats": [[seat.index, seat.rank, run_id(names.submission, seat)] for seat in seats_of(job, role)],
        "shelves": [names.shelf(seat.index) for seat in seats_of(job, role)],
        "of_primary_run": [names.shelf(seat.index) for seat in seats(job) if ends_job(job, seat.role) == "always"],
        "sets": [*names.sets(), *([names.rdzv] if own_store(job, shared=shared) else [])],
        "keep_for": keep_for,
    }


def _options(names: JobNames, role: Role) -> dict[str, str]:
    job = names.job
    seat = seats_of(job, role)[0]
    found = {name: text for name, text in role.run_options if name not in NOT_OF_AGENTS}
    return {**found, "nnodes": str(seat.nodes), **part_of(job, names.submission, role)}


def _meeting(names: JobNames, role: Role, keep_for: float, *, shared: bool) -> dict[str, str]:
    job, given = names.job, dict(role.run_options)
    if not has_store(job):
        return {"rdzv_conf": given["rdzv_conf"]} if given.get("rdzv_conf") else {}
    if given.get("rdzv_endpoint"):
        return {name: given[name] for name in NOT_OF_AGENTS if given.get(name)}
    conf = [
        # A pod that is replaced while the others are kept has to learn that the run is over.
        f"{PATIENCE},outcome_ttl={int(keep_for) + 600}",
        given.get("rdzv_conf", ""),  # what the user says comes later, and holds
        f"cacert={TOLD}/certificate,server_name={SERVER_NAME},user=root,password_file={TOLD}/password",
    ]
    return {
        "rdzv_backend": "etcd",
        "rdzv_endpoint": f"{SHARED if shared else names.rdzv}:{PORT}",
        "rdzv_conf": ",".join(filter(None, conf)),
    }


def _given(job: Job, name: str) -> str:
    return next((text for role in roles(job) for key, text in role.run_options if key == name), "")
