"""The code on an instance: fetched from S3, checked, unpacked."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lattice.errors import LatticeError
from lattice.jobs.aws.client import Client
from lattice.jobs.unpacking import unpack


def fetch(client: Client, code: Mapping[str, Any], folder: Path) -> str:
    """
    Fetch the code, and see that it is what was submitted.

    :param client: AWS
    :param code: a :class:`~lattice.jobs.aws.userdata.CodeAt`, as JSON has it
    :param folder: where it goes
    :return: the script, as the worker's container finds it
    :raises LatticeError: it is something else, or no archive
    """
    if not code["url"]:
        return str(code["script"])
    bucket, _, key = code["url"].removeprefix("s3://").partition("/")
    name = key.rpartition("/")[2]
    file = folder.parent / "code.tar" if code["archive"] else folder / name
    digest = hashlib.sha256()
    with file.open("wb") as target:
        for chunk in client.chunks(bucket, key):
            digest.update(chunk)
            target.write(chunk)
    if code["digest"] and digest.hexdigest() != code["digest"]:
        raise LatticeError(f"{code['url']} is not what was submitted: its digest is {digest.hexdigest()}.")
    if not code["archive"]:
        return str(file)
    try:
        with tarfile.open(file) as tar:
            unpack(tar, folder)
    except tarfile.TarError as error:
        raise LatticeError(f"{code['url']} is no archive that can be unpacked: {error}.") from error
    return str(folder / code["script"])
