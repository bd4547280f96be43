"""What ssh, srun, shells and Python say when a node's program does not start, told so that a user knows what to do."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Sequence

from lattice.launching.transports.child import NOT_FOUND, Ending

NOT_EXECUTABLE = 126
SSH_FAILED = 255

TURNED_AWAY = "turned away"

# In this order: an ssh that jumps also prints what follows from the reason, so what is more exact comes first.
_SSH: tuple[tuple[str, str, str, str], ...] = (
    (
        "name",
        r"Could not resolve hostname (?P<at>\S+): ",
        "the name {at} does not resolve",
        "Check the spelling, DNS and /etc/hosts, or give it a HostName in the SSH configuration.",
    ),
    (
        "changed key",
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "it shows another host key than the one on record: a new installation, or somebody in between",
        "If it was installed anew: ssh-keygen -R {host}, then connect once by hand: {ssh}",
    ),
    (
        "unknown key",
        r"Host key verification failed",
        "its host key is not known here",
        "Connect once by hand and compare the key: {ssh}",
    ),
    (
        "credentials",
        r"(?P<at>\S+): Permission denied \((?P<why>[^)]*)\)",
        "{at} was refused: permission denied ({why})",
        "A key must work without a question: ssh-add it, or name it with IdentityFile, and put its public half into"
        " authorized_keys there (ssh-copy-id). Try: {ssh}",
    ),
    (
        "credentials",
        r"Too many authentication failures",
        "it was refused: too many keys were tried",
        "Name the right one with IdentityFile and set IdentitiesOnly yes. Try: {ssh}",
    ),
    (
        "refused",
        r"connect to host (?P<at>\S+) port (?P<port>\d+): Connection refused",
        "{at} refuses connections on port {port}",
        "Is sshd running there, and on that port? Write HOST:PORT for another. Try: {ssh}",
    ),
    (
        "unreachable",
        r"connect to host (?P<at>\S+) port (?P<port>\d+): (?P<why>.+)",
        "{at} port {port} cannot be reached: {why}",
        "Is it up, and does a firewall let this machine through? Try: {ssh}",
    ),
    (
        "unreachable",
        r"open failed: (?P<why>.+)",
        "the jump host cannot reach it: {why}",
        "Check HostName and Port as seen from the jump host. Try: {ssh}",
    ),
    (
        "unreachable",
        r"Connection timed out during banner exchange|Connection to \S+ timed out",
        "nothing that speaks SSH answered in time",
        "Is that the port of sshd, and is the machine overloaded? Try: {ssh}",
    ),
    (
        "algorithms",
        r"Unable to negotiate with .*?: (?P<why>.+)",
        "it and this ssh have nothing in common: {why}",
        "Allow one of its algorithms for this host in the SSH configuration. Try: {ssh}",
    ),
    (
        "configuration",
        r"(?P<why>Can't open user config file .+|.*: line \d+: .+|terminating, \d+ bad configuration options)",
        "the SSH configuration is wrong: {why}",
        "Correct the file, or name another with ssh_config_file.",
    ),
    (
        "lost",
        r"Timeout, server \S+ not responding",
        "the connection was lost: no answer for some seconds",
        "Is the machine up, and the network between?",
    ),
    (
        TURNED_AWAY,
        r"kex_exchange_identification|Exceeded MaxStartups|Not allowed at this time",
        "its sshd closed the connection before a key was shown, more than once",
        "Raise MaxStartups (and PerSourceMaxStartups, PerSourcePenalties) in its sshd_config, or look into its log.",
    ),
    (
        "lost",
        r"(?P<why>Connection to .+ closed by remote host|Connection reset by .+|Connection closed by .+)",
        "the connection was lost: {why}",
        "Look into sshd's log on that machine.",
    ),
)

_SRUN: tuple[tuple[str, str, str], ...] = (
    (
        r"(?P<why>Invalid job id specified|Job/step already completing or completed|Job has been cancelled.*)",
        "SLURM job {job} is over ({why})",
        "Launch from within a running allocation: sbatch, salloc.",
    ),
    (
        r"Requested node configuration is not available|Invalid node name|not in this job's allocation",
        "SLURM job {job} has no node of that name",
        "Use hostnames='slurm', or names that scontrol show hostnames prints.",
    ),
    (
        r"(?P<why>Node failure on \S+|.*communication connection failure|.*Unable to confirm allocation.*"
        r"|.*(Unable to contact|Connection refused|Socket timed out).*)",
        "SLURM lost it: {why}",
        "See sinfo -R and the log of slurmd there.",
    ),
    (
        r"(?P<why>Unable to create step for job .+)",
        "SLURM starts no step there: {why}",
        "See squeue --steps, and scontrol show job {job}.",
    ),
)


def of_ssh_kind(stderr: str) -> str | None:
    """Give the kind of a failure of ssh itself; None if it says nothing that is known."""
    for kind, pattern, _, _ in _SSH:
        if re.search(pattern, stderr, re.MULTILINE):
            return kind
    return None


def of_ssh(given: str, host: str, ssh: Sequence[str], program: Sequence[str], ending: Ending) -> str:
    """
    Say why there is no node behind an ssh.

    :param given: the host as the user wrote it
    :param host: its name for known_hosts
    :param ssh: the command to try by hand
    :param program: what should have run there
    :param ending: how ssh ended
    """
    if ending.status == NOT_FOUND and ending.stderr.startswith(f"{ssh[0]}: "):
        return f"{given}: there is no program {ssh[0]!r} on this machine. Install the OpenSSH client (openssh-client)."
    if ending.status == SSH_FAILED:
        for _, pattern, what, step in _SSH:
            match = re.search(pattern, ending.stderr, re.MULTILINE)
            if match:
                facts = {"host": host, "ssh": shlex.join(ssh), **match.groupdict()}
                return f"{given}: {what.format(**facts)}. {step.format(**facts)}"
        return f"{given}: ssh failed{_last(ending.stderr)}. Try: {shlex.join(ssh)}"
    return of_program(given, program, ending)


def of_srun(given: str, job: str, program: Sequence[str], ending: Ending) -> str:
    """
    Say why there is no node behind an srun.

    :param given: the node
    :param job: the number of the allocation
    :param program: what should have run there
    :param ending: how srun ended
    """
    if ending.status == NOT_FOUND and ending.stderr.startswith("srun: "):
        return f"{given}: there is no program 'srun' on this machine. Install SLURM's client, or start from a node."
    match = re.search(r"execve\(\): (?P<program>.+): (?P<why>.+)", ending.stderr)
    if match:
        return _no_python(given, program, match["why"])
    for pattern, what, step in _SRUN:
        match = re.search(pattern, ending.stderr)
        if match:
            facts = {"job": job, **match.groupdict()}
            return f"{given}: {what.format(**facts)}. {step.format(**facts)}"
    return of_program(given, program, ending)


def of_program(given: str, program: Sequence[str], ending: Ending) -> str:
    """
    Say why the program on a host ended.

    :param given: the host as the user wrote it
    :param program: its command
    :param ending: how it ended
    """
    if ending.status is None:
        return (
            f"{given}: no word from {program[0]} so far{_last(ending.stderr, '')}. Is that machine overloaded, or does"
            " its login shell wait for something?"
        )
    if ending.status in (NOT_FOUND, NOT_EXECUTABLE):
        return _no_python(given, program, ending.stderr.splitlines()[-1] if ending.stderr else "not found")
    match = re.search(r"No module named '?(?P<module>[\w.]+)'?", ending.stderr)
    if match and match["module"].partition(".")[0] == "lattice":
        version = "" if match["module"] == "lattice" else ", or an older one than here"
        return (
            f"{given}: {program[0]} has no Lattice{version} ({match[0]}). Install the version of this machine for that"
            " interpreter, or name one that has it with python=."
        )
    if ending.status < 0:
        name = signal.Signals(-ending.status).name
        return (
            f"{given}: killed by {name}{_last(ending.stderr)}. Look for the out-of-memory killer in the kernel's log."
        )
    if ending.status == 0 and not ending.stderr:
        return (
            f"{given}: {program[0]} ended without a word. Does a forced command, or a login script that exits, stand in"
            " its way?"
        )
    return f"{given}: {program[0]} ended with exit code {ending.status}{_last(ending.stderr)}."


def _no_python(given: str, program: Sequence[str], why: str) -> str:
    return (
        f"{given}: {program[0]} cannot be executed there ({why}). Install Python at that path, or name the"
        " interpreter of that host with python=."
    )


def _last(stderr: str, nothing: str = ", and said nothing") -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    return f": {lines[-1].strip().rstrip('.')}" if lines else nothing
