"""What each node of a job is told: the command line of its agent, and how it knows the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from lattice.jobs.job import Job, Role
from lattice.jobs.roles import ends_job, run_id, seats
from lattice.launching.certificate import NoCertificate, certificate_of, make_text

PASSWORD = "LATTICE_RDZV_PASSWORD"
CERTIFICATE, IDENTITY = "store.crt", "store.pem"
"""files beside the code: the certificate of the store, and with its key"""


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the agents of a submission meet."""

    endpoint: str
    """address and port of the store that node 0 serves; empty if the node itself finds out"""
    password: str = ""
    certificate: str = ""
    """by which the store is known; empty for one without TLS"""
    identity: str = ""
    """that certificate with its key, for the node that serves"""

    @staticmethod
    def known(facts: Mapping[str, Any]) -> Meeting:
        """Give the one that a record remembers."""
        return Meeting(facts["endpoint"], facts["password"], facts["certificate"], facts["identity"])


def new_meeting(endpoint: str, say: Callable[[str], None]) -> dict[str, str]:
    """
    Make what the agents of a submission know each other by.

    :param endpoint: see :class:`Meeting`
    :param say: takes a warning for the user
    :return: what a record has to remember
    """
    found = {"endpoint": endpoint, "password": token_hex(32), "certificate": "", "identity": ""}
    try:
        text = make_text()
    except NoCertificate as error:
        say(f"WARNING: what the nodes tell each other is not encrypted: {error}")
        return found
    return {**found, "certificate": certificate_of(text).decode(), "identity": text.decode()}


def program_words(job: Job, role: Role) -> tuple[str, ...]:
    """Give the words after the options: a role's program, as it is found from where the code is, and its arguments."""
    if role.command:
        return (*role.command, *role.arguments)
    source = job.code.source
    if job.code.upload:
        return (role.script or source.rpartition("/")[2], *role.arguments)
    path = f"{source.rstrip('/')}/{role.script}" if source and role.script else source or role.script
    return (path, *role.arguments)


def order(job: Job, submission: str, index: int, meeting: Meeting) -> dict[str, Any]:
    """
    Give a node's orders.

    :param job: the job
    :param submission: names the job's runs
    :param index: of the node
    :param meeting: where to meet the others
    :return: ``argv`` after ``lattice run``, ``environment``, ``files`` for the folder above the code
    """
    seat = seats(job)[index]
    options = dict(seat.role.run_options)
    files: dict[str, str] = {}
    options |= {"rdzv_id": run_id(submission, seat), "nnodes": str(seat.nodes)} | part_of(job, submission, seat.role)
    environment = dict(seat.role.environment)
    if (job.size.maximum > 1 or job.roles) and not options.get("rdzv_endpoint"):
        options |= {"rdzv_backend": "embedded", "node_rank": str(seat.rank)}
        options |= {"rdzv_endpoint": meeting.endpoint} if meeting.endpoint else {}
        environment[PASSWORD] = meeting.password
        conf = [options.get("rdzv_conf", "")]
        if meeting.certificate:
            files[CERTIFICATE] = meeting.certificate
            conf.append(f"cacert=../{CERTIFICATE}")
            if index == 0:
                files[IDENTITY] = meeting.identity
                conf += [f"cert=../{IDENTITY}", f"key=../{IDENTITY}"]
        if job.roles:  # each run has a rank 0, and there is one store for all
            conf.append(f"is_host={int(index == 0)}")
        options |= {"rdzv_conf": text} if (text := ",".join(filter(None, conf))) else {}
    argv = [word for name, text in sorted(options.items()) for word in _words(name, text)]
    return {"argv": [*argv, *program_words(job, seat.role)], "environment": environment, "files": files}


def shown(orders: Mapping[str, Any]) -> tuple[str, ...]:
    """Write orders for a reader, without secrets."""
    import shlex

    variables = [f"{name}={'***' if name == PASSWORD else text}" for name, text in orders["environment"].items()]
    return (shlex.join(["lattice", "run", *orders["argv"]]), *variables)


def part_of(job: Job, submission: str, role: Role) -> dict[str, str]:
    """Give the options that make a run a part of a job."""
    if not job.roles:
        return {}
    names = ",".join(one.name for one in job.roles)
    return {"role": role.name, "job_id": submission, "job_roles": names, "ends_job": ends_job(job, role)}


def _words(name: str, text: str) -> tuple[str, ...]:
    return (f"--{name}",) if text == "" else (f"--{name}", text)
