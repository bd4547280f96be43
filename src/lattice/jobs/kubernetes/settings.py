"""What the user says about a cluster, as values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lattice.errors import UsageError
from lattice.jobs.job import Job, Role
from lattice.jobs.roles import roles

KEEP_FOR = 3600.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Where in which cluster, and by whose leave."""

    namespace: str = ""
    """empty for that of the kubeconfig's context"""
    context: str = ""
    kubeconfig: str = ""
    service_account: str = ""
    """one that is there already, in place of one made for the job"""
    secrets: tuple[str, ...] = ()
    """names of Secrets whose keys are variables of the nodes"""
    image_pull_secret: str = ""
    image_pull_policy: str = ""
    keep_for: float = KEEP_FOR
    """seconds that the pods of a job stay after its end"""


@dataclass(frozen=True, slots=True)
class Needs:
    """What each node of a role gets."""

    image: str
    cpu: str = ""
    memory: str = ""
    gpus: int = 0


def settings(options: Mapping[str, str]) -> Settings:
    """Read the options of the place."""
    return Settings(
        namespace=options.get("namespace", ""),
        context=options.get("context", ""),
        kubeconfig=options.get("kubeconfig", ""),
        service_account=options.get("service_account", ""),
        secrets=tuple(name for name in options.get("secrets", "").split(",") if name),
        image_pull_secret=options.get("image_pull_secret", ""),
        image_pull_policy=options.get("image_pull_policy", ""),
        keep_for=float(options.get("keep_for") or KEEP_FOR),
    )


def needs(job: Job, role: Role) -> Needs:
    """
    Tell what a role needs.

    :raises UsageError: nobody says which image its nodes have
    """
    said = role.place_options
    if not said.get("image"):
        of = f"role {role.name}: " if job.roles else ""
        raise UsageError(f"{of}--on kubernetes needs --image: one with Lattice in it; lattice image build makes one")
    return Needs(said["image"], said.get("cpu", ""), said.get("memory", ""), int(said.get("gpus") or 0))


def gpus(job: Job) -> int:
    """Give the most GPUs that one node of a job wants."""
    return max(needs(job, role).gpus for role in roles(job))


def images(job: Job) -> set[str]:
    """Give all images that a job's nodes run."""
    return {image for role in roles(job) for image in (needs(job, role).image, *(one.image for one in role.sidecars))}
