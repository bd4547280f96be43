"""The names of a job's roles, and of the variables by which a worker finds them."""

from __future__ import annotations

FILE = "LATTICE_PEERS_FILE"
"""the file that lists the workers of every role, kept up to date by the agent"""
PORT = "LATTICE_WORKER_PORT"
"""the port on which a worker may listen for other roles"""
KEY = "LATTICE_JOB_KEY"
"""a secret of the job's workers, if the job's store has a password to make it from"""
PREFIX = "LATTICE_PEERS_"
ENDS = ("always", "failure", "never")
"""when the end of a run ends the job: always, only if the run failed, never"""


def role_names(value: str) -> tuple[str, ...]:
    """
    Read names of roles separated by commas.

    :raises ValueError: a name is none, or two of them would have the same variable
    """
    names = tuple(part.strip() for part in value.split(",")) if value.strip() else ()
    if not all(is_role(name) for name in names) or len({variable_of(name) for name in names}) < len(names):
        raise ValueError
    return names


def is_role(name: str) -> bool:
    """Tell whether a role can have this name: letters, digits and dashes, and its variable means nothing else."""
    return name.isascii() and name.replace("-", "").isalnum() and variable_of(name) != FILE


def variable_of(role: str) -> str:
    """Name the variable that lists the workers of a role."""
    return PREFIX + role.upper().replace("-", "_")


def late_variables(roles: tuple[str, ...]) -> frozenset[str]:
    """Name all variables that a worker of a job has beside those of its run."""
    return frozenset((FILE, PORT, *map(variable_of, roles)))
