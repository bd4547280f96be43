"""Which job a run is a part of, and which of its roles it has."""

from __future__ import annotations

from lattice.core.roles import is_role
from lattice.core.spec import JobSpec
from lattice.errors import UsageError
from lattice.options.parsing import Parsed
from lattice.options.table import ENDS_JOB, JOB_ID, JOB_ROLES, ROLE


def job_spec(parsed: Parsed) -> JobSpec:
    """
    Give the options of a job their meaning.

    :param parsed: what the user said
    :raises UsageError: an option is missing, or the run's role is none of the job's
    """
    if not parsed.has(JOB_ID):
        for option in (JOB_ROLES, ENDS_JOB):
            if parsed.has(option):
                text = parsed.given[option.name].text
                raise UsageError(f"{option.title} is {text!r}, which needs the name of the job: {JOB_ID.title}")
        return JobSpec()
    role, roles = parsed[ROLE], parsed[JOB_ROLES]
    if not is_role(role):
        raise UsageError(
            f"{ROLE.title} is {role!r}; accepted with {JOB_ID.title}: letters, digits and -, but not file, for "
            "the name becomes part of a variable"
        )
    if roles and role not in roles:
        given = ",".join(roles)
        raise UsageError(f"{ROLE.title} is {role!r}, and {JOB_ROLES.title} is {given!r}; accepted: one of these")
    return JobSpec(parsed[JOB_ID], roles or (role,), parsed[ENDS_JOB])
