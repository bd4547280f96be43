"""What runs before a node: it brings the code into the pod."""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lattice.errors import LatticeError
from lattice.jobs.kubernetes.order import TOLD
from lattice.jobs.unpacking import unpack


def bring(code: Mapping[str, Any], archive: Path, folder: Path) -> None:
    """
    Unpack the code, or fetch it from S3.

    :param code: a :class:`~lattice.jobs.aws.userdata.CodeAt`, as JSON has it
    :param archive: where it is, unless it is in S3
    :param folder: where it goes
    :raises LatticeError: it is not what was submitted, or no archive
    """
    folder.mkdir(parents=True, exist_ok=True)
    if code["url"]:
        from lattice.jobs.aws.client import Client
        from lattice.jobs.aws.code import fetch

        fetch(Client(), code, folder)
        return
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if code["digest"] and digest != code["digest"]:
        raise LatticeError(f"{archive} is not what was submitted: its digest is {digest}.")
    try:
        with tarfile.open(archive) as tar:
            unpack(tar, folder)
    except tarfile.TarError as error:
        raise LatticeError(f"{archive} is no archive that can be unpacked: {error}.") from error


def main(words: list[str]) -> int:
    """Do it."""
    try:
        order = json.loads(Path(TOLD, "order").read_text(encoding="utf-8"))
        bring(order["code"], Path(words[0]), Path(words[1]))
    except (LatticeError, OSError) as error:
        print(f"lattice: {error}", file=sys.stderr, flush=True)
        return 1
    return 0
