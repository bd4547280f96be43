"""What the objects of a job are called, and the labels by which they are found again. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from lattice.errors import UsageError
from lattice.jobs.job import Job, Role
from lattice.jobs.roles import roles

JOB, SUBMISSION, ROLE, INDEX = "lattice/job", "lattice/submission", "lattice/role", "lattice/index"
MANAGED_BY = "app.kubernetes.io/managed-by"
RDZV = "rdzv"
"""the label of etcd, in place of a role"""
LONGEST = 45
"""characters of a StatefulSet's name: its pods have labels of 63 that hold it and a digest"""


@dataclass(frozen=True, slots=True)
class JobNames:
    """What one submission's objects are called."""

    job: Job
    submission: str

    @property
    def owner(self) -> str:
        """The ConfigMap that owns all others."""
        return self.job.name

    @property
    def service(self) -> str:
        """The headless Service under which the pods of all roles are found."""
        return self.job.name

    @property
    def account(self) -> str:
        """The ServiceAccount, its Role and RoleBinding, the Secret, the NetworkPolicy."""
        return self.job.name

    @property
    def code(self) -> str:
        """The ConfigMap with the code."""
        return f"{self.job.name}-code"

    @property
    def rdzv(self) -> str:
        """The StatefulSet of etcd, and its Service."""
        return f"{self.job.name}-{RDZV}"

    def set_of(self, role: Role) -> str:
        """Name a role's StatefulSet; with a number after it, its pods."""
        name = f"{self.job.name}-{role.name}" if self.job.roles else self.job.name
        if len(name) <= LONGEST:
            return name
        return f"{name[: LONGEST - 7].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"

    def sets(self) -> list[str]:
        """Name the StatefulSets of all roles."""
        return [self.set_of(role) for role in roles(self.job)]

    def shelf(self, index: int) -> str:
        """Name the ConfigMap in which a node leaves word of itself."""
        return f"{self.job.name}-node-{index}"

    def labels(self, role: str = "") -> dict[str, str]:
        """Give the labels of an object."""
        found = {MANAGED_BY: "lattice", JOB: self.job.name, SUBMISSION: self.submission}
        return {**found, ROLE: role} if role else found

    @property
    def selector(self) -> str:
        """What finds all objects of the submission."""
        return f"{SUBMISSION}={self.submission}"


def check(job: Job) -> None:
    """
    See that a job and its roles can have their names.

    :raises UsageError: they can't
    """
    if not job.name[0].isalpha():  # a Service has the name, and is refused when half of the job is made
        raise UsageError(f"--name is {job.name!r}: on Kubernetes it has to begin with a letter")
    for role in job.roles:
        if role.name == RDZV:
            raise UsageError(f"no role can be called {RDZV!r} on Kubernetes: that is the job's etcd; call it otherwise")
        taken = {"node", "code"} & {one.name for one in role.sidecars}
        if taken:
            raise UsageError(
                f"role {role.name}: no sidecar can be called {taken.pop()!r}, as a container of Lattice's is; "
                "call it otherwise"
            )
