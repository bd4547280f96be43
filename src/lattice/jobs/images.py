"""Images for jobs: made from a folder as git has it, called by what is in them, and pushed where clusters pull them."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lattice import __version__
from lattice.errors import LatticeError, UsageError
from lattice.jobs import archive
from lattice.jobs.aws.client import Client
from lattice.jobs.aws.plan import Call
from lattice.jobs.backends import Say
from lattice.jobs.job import Code
from lattice.jobs.registry import Login
from lattice.jobs.unpacking import unpack

BASE = "python:3.11-slim-bookworm"
BUILDERS = ("docker", "podman")
REGISTRY = re.compile(r"\d+\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")
"""of an AWS account"""
OWN = "Dockerfile.lattice"


class BuildFailed(LatticeError):
    """Docker or podman said no."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an image shall be."""

    name: str
    """with a tag it is called so"""
    dockerfile: str = ""
    """a file; empty for :func:`template`"""
    base: str = ""
    """what it stands on: the argument BASE of that file; empty for its default"""


def template(requirements: str, base: str = BASE) -> str:
    """
    Give a Dockerfile for all roles of a job: Lattice, etcd, what the code needs, the code. Pure.

    :param requirements: a file of the folder for pip; empty for none
    :param base: an image with Python 3.11 or newer and pip, of Debian or with what apt-get would install here
    """
    needs = [f"COPY {requirements} /tmp/requirements.txt", "RUN pip install --no-cache-dir -r /tmp/requirements.txt"]
    return "\n".join(
        [
            f"FROM {base}",
            "USER root",
            "RUN for program in etcd etcdctl openssl; do command -v $program >/dev/null || missing=1; done; \\",
            '    [ -z "$missing" ] || ( apt-get update \\',
            "    && apt-get install -y --no-install-recommends etcd-server etcd-client openssl \\",
            "    && rm -rf /var/lib/apt/lists/* )",
            f'RUN pip install --no-cache-dir "lattice-addons-pytorch[aws]=={__version__}"',
            *(needs if requirements else []),
            "RUN getent passwd 1000 >/dev/null || useradd --uid 1000 --create-home lattice",
            "COPY --chown=1000:1000 . /app",
            "WORKDIR /app",
            "USER 1000:1000",
            "",
        ]
    )


def tag(name: str, content: str, dockerfile: str, base: str = "") -> str:
    """Name an image by what it is made of: the same folder, Dockerfile and base give the same name. Pure."""
    if ":" in name.rpartition("/")[2]:
        return name
    return f"{name}:{hashlib.sha256(f'{content} {dockerfile} {base}'.strip().encode()).hexdigest()[:12]}"


def target(image: str, registry: str) -> str:
    """Name an image as it is called in a registry. Pure."""
    return image if image.startswith(f"{registry}/") else f"{registry.rstrip('/')}/{image.rpartition('/')[2]}"


def builder(wanted: str = "") -> str:
    """
    Find what builds images.

    :raises UsageError: there is nothing
    """
    found = next((name for name in ((wanted,) if wanted else BUILDERS) if shutil.which(name)), None)
    if found is None:
        raise UsageError(
            f"there is no {wanted or 'docker or podman'} on this machine to build images with; install one"
        )
    return found


def build(folder: str, wanted: Wanted, say: Say, program: str = "") -> str:
    """
    Build an image.

    :param folder: goes along as git would have it
    :param wanted: what it shall be
    :return: what it is called
    :raises UsageError: there is no such folder or file
    :raises BuildFailed: it could not be built
    """
    source, dockerfile, base = Path(folder), wanted.dockerfile, wanted.base
    if not source.is_dir():
        raise UsageError(f"{folder!r} is no folder: name the one that goes into the image")
    if dockerfile and not Path(dockerfile).is_file():
        raise UsageError(f"there is no {dockerfile!r}: -d names a Dockerfile")
    found = "requirements.txt" if (source / "requirements.txt").is_file() else ""
    text = Path(dockerfile).read_text(encoding="utf-8") if dockerfile else template(found, base or BASE)
    program = builder(program)
    with archive.packed(Code(folder), say) as packed, tempfile.TemporaryDirectory(prefix="lattice-") as context:
        with packed.open() as file, tarfile.open(fileobj=file) as tar:
            unpack(tar, Path(context))
        Path(context, OWN).write_text(text, encoding="utf-8")
        called = tag(wanted.name, packed.digest, text, base if dockerfile else "")
        say(f"building {called} with {program}")
        argument = ["--build-arg", f"BASE={base}"] if base and dockerfile else []
        _call([program, "build", "--tag", called, "--file", f"{context}/{OWN}", *argument, context])
    return called


def ecr_login(registry: str) -> Login | None:
    """
    Fetch a login to a registry of an AWS account; None for any other.

    :raises LatticeError: AWS gives none
    """
    owner = REGISTRY.match(registry)
    if owner is None:
        return None
    data = Client(owner["region"]).call(Call("ecr", "get_authorization_token", {}))["authorizationData"][0]
    return Login.of(data["authorizationToken"])


def push(image: str, registry: str, say: Say, program: str = "") -> str:
    """
    Push an image to a registry; one of AWS is logged in to first.

    :return: what it is called there
    :raises BuildFailed: it could not be pushed
    """
    program, called = builder(program), target(image, registry)
    if (known := ecr_login(registry)) is not None:
        host = registry.partition("/")[0]
        _call([program, "login", "--username", known.user, "--password-stdin", host], known.password)
    if called != image:
        _call([program, "tag", image, called])
    say(f"pushing {called}")
    _call([program, "push", called])
    return called


def _call(argv: list[str], given: str = "") -> None:
    # What it says is for the user's eyes; our output is the name of the image, for whoever uses it.
    ended = subprocess.run(argv, input=given.encode(), stdout=sys.stderr.fileno(), check=False)
    if ended.returncode:
        raise BuildFailed(f"{argv[0]} {argv[1]} ended with {ended.returncode}; what it said is above.")
