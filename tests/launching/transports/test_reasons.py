"""Words for what cannot be provoked everywhere, and which of several reasons is the one to tell."""

from __future__ import annotations

import pytest

from lattice.launching.transports.child import Ending
from lattice.launching.transports.reasons import TURNED_AWAY, of_program, of_srun, of_ssh, of_ssh_kind

PYTHON = ("/usr/bin/python3", "-m", "lattice.launching.node")


def ssh(stderr: str, status: int | None = 255) -> str:
    return of_ssh("me@n:22", "[n]:22", ("ssh", "-p", "22", "--", "n"), PYTHON, Ending(status, stderr))


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        (
            "Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures",
            "me@n:22: it was refused: too many keys were tried. Name the right one with IdentityFile",
        ),
        (
            "Unable to negotiate with 10.0.0.1 port 22: no matching host key type found. Their offer: ssh-rsa",
            "me@n:22: it and this ssh have nothing in common: no matching host key type found.",
        ),
        ("ssh: connect to host n port 22: No route to host", "me@n:22: n port 22 cannot be reached: No route to host."),
        ("something new", "me@n:22: ssh failed: something new. Try: ssh -p 22 -- n"),
        ("", "me@n:22: ssh failed, and said nothing. Try: ssh -p 22 -- n"),
    ],
)
def test_what_ssh_says(stderr: str, said: str) -> None:
    assert ssh(stderr).startswith(said)


def test_what_follows_from_a_reason_is_not_told_in_its_place() -> None:
    after = "kex_exchange_identification: Connection closed by remote host\r\nConnection closed by UNKNOWN port 65535"
    assert of_ssh_kind(after) == TURNED_AWAY
    assert of_ssh_kind(f"me@door: Permission denied (publickey).\r\n{after}") == "credentials"
    assert of_ssh_kind(f"ssh: connect to host door port 22: Connection refused\r\n{after}") == "refused"
    assert of_ssh_kind("Warning: Permanently added 'n' to the list of known hosts.") is None


def test_what_the_program_wrote_is_no_failure_of_ssh() -> None:
    assert ssh("urllib3: connect to host x port 1: Connection refused", 1).startswith(
        "me@n:22: /usr/bin/python3 ended with exit code 1: "
    )


def test_an_older_lattice() -> None:
    said = of_program("n", PYTHON, Ending(1, "python3: No module named lattice.launching"))
    assert "python3 has no Lattice, or an older one than here (No module named lattice.launching)." in said


def test_no_word_yet() -> None:
    assert ssh("", None).startswith("me@n:22: no word from /usr/bin/python3 so far. Is that machine")


def test_a_node_that_slurm_lost() -> None:
    said = of_srun("n", "7", PYTHON, Ending(1, "srun: error: Node failure on n"))
    assert said == "n: SLURM lost it: Node failure on n. See sinfo -R and the log of slurmd there."
