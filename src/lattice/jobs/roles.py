"""Who does what in a job: its roles, and for each node the role, run and rank that it has. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lattice.core.spec import NodeRange
from lattice.errors import UsageError
from lattice.jobs.job import EACH, Job, Role

ONLY = "default"
"""the role of a job that has no roles, as ``lattice run`` calls it"""


@dataclass(frozen=True, slots=True)
class Seat:
    """What one node of a job is."""

    index: int
    """number of the node in the job"""
    role: Role
    number: int
    """number of the node in its role"""
    group: str
    """which of the job's runs it takes part in; empty if there is but one"""
    nodes: NodeRange
    """size of that run"""
    rank: int
    """number of the node in that run"""


def roles(job: Job) -> tuple[Role, ...]:
    """Give the roles of a job, the primary one first; one that stands for all nodes if it has none."""
    if job.roles:
        return job.roles
    return (
        Role(
            ONLY,
            job.size,
            script=job.code.script,
            arguments=job.arguments,
            run_options=job.run_options,
            environment=job.environment,
            place_options=job.place_options,
        ),
    )


def role_of(job: Job, name: str) -> Role:
    """
    Find a role by its name; an empty one is right for a job with one role.

    :raises UsageError: there is none, or none is named and there are several
    """
    known = roles(job)
    found = [role for role in known if role.name == name or (not name and len(known) == 1)]
    if found:
        return found[0]
    names = ", ".join(role.name for role in known)
    if not name:
        raise UsageError(f"{job.name} has several roles: name one with --role ({names})")
    raise UsageError(f"{job.name} has no role {name!r}; there {'is' if len(known) == 1 else 'are'} {names}")


def seats(job: Job) -> tuple[Seat, ...]:
    """Give every node of a job its place: role after role, as many as each has at most."""
    found: list[Seat] = []
    taken: dict[str, int] = {}
    for role in roles(job):
        for number in range(role.size.maximum):
            group = _group(job, role, number)
            rank = taken.get(group, 0)
            taken[group] = rank + 1
            found.append(Seat(len(found), role, number, group, _nodes(job, role), rank))
    return tuple(found)


def seats_of(job: Job, role: Role) -> tuple[Seat, ...]:
    """Give the places of one role."""
    return tuple(seat for seat in seats(job) if seat.role.name == role.name)


def scripts(job: Job) -> tuple[str, ...]:
    """Give the scripts that have to be in the job's folder."""
    return tuple(role.script for role in roles(job) if role.script)


def title(job: Job, index: int) -> str:
    """Say which node is meant: its number, and its role if there are roles."""
    return f"node {index} ({seats(job)[index].role.name})" if job.roles else f"node {index}"


def grace_of(role: Role) -> float:
    """Give the seconds that a node has to leave: its workers' time to save, and the agent's to say goodbye."""
    return time_to_save(role) + 30


def time_to_save(role: Role) -> float:
    """Give the seconds that workers have to end by themselves."""
    return float(dict(role.run_options).get("shutdown_timeout", 30))


def total(sizes: Sequence[NodeRange]) -> NodeRange:
    """Add sizes up."""
    return NodeRange(sum(size.minimum for size in sizes), sum(size.maximum for size in sizes))


def run_id(submission: str, seat: Seat) -> str:
    """Name the run that a node takes part in."""
    return f"{submission}.{seat.group}" if seat.group else submission


def ends_job(job: Job, role: Role) -> str:
    """Tell when the end of a role's run is the end of the job, as ``lattice run --ends_job`` takes it."""
    primary = roles(job)[0]
    if _group(job, role, 0) == _group(job, primary, 0):
        return "always"
    return "failure" if role.if_failed == "end_job" else "never"


def _group(job: Job, role: Role, number: int) -> str:
    if not job.roles:
        return ""
    return f"{role.name}-{number}" if role.group == EACH else role.group or role.name


def _nodes(job: Job, role: Role) -> NodeRange:
    if role.group == EACH:
        return NodeRange(1, 1)
    mine = role.group or role.name
    return total([one.size for one in roles(job) if one.group != EACH and (one.group or one.name) == mine])
