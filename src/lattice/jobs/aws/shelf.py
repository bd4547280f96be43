"""Scripts and folders that are put into S3 for many jobs, not with one."""

from __future__ import annotations

import contextlib
import getpass
from collections.abc import Mapping
from pathlib import Path

from lattice.errors import UsageError
from lattice.jobs import archive
from lattice.jobs.aws import specs
from lattice.jobs.aws.client import Client
from lattice.jobs.backends import Say
from lattice.jobs.job import Code


def put(source: str, destination: str, options: Mapping[str, str], say: Say) -> str:
    """
    Put a file there, or a folder as an archive.

    :param source: file or folder
    :param destination: ``s3://BUCKET/PREFIX``; empty for the user's own place in the bucket of the specs file
    :param options: as jobs have them: where the specs file is, and the region
    :return: the address
    :raises UsageError: one of them does not make sense
    """
    path = Path(source)
    if not path.exists():
        raise UsageError(f"there is no {source!r} here")
    region = options.get("region", "")
    if not destination:
        if "specs_file" not in options:
            raise UsageError("where to? Name s3://BUCKET/PREFIX, or a --specs_file that has s3_bucket")
        wanted = specs.parse(specs.of(options))
        region = wanted.region
        prefix = wanted.worker.s3_prefix.strip("/")
        destination = f"s3://{wanted.worker.s3_bucket}/{prefix}/{getpass.getuser()}/scripts"
    bucket, _, prefix = destination.removeprefix("s3://").partition("/")
    if not destination.startswith("s3://") or not bucket:
        raise UsageError(f"{destination!r} is no place in S3; accepted: s3://BUCKET/PREFIX")
    name = f"{path.resolve().name}.tar.gz" if path.is_dir() else path.name
    key = "/".join(part for part in (*prefix.split("/"), name) if part)
    client = Client(region)
    with contextlib.ExitStack() as stack:
        local = stack.enter_context(archive.packed(Code(source), say)).path if path.is_dir() else source
        say(f"uploading {source} to s3://{bucket}/{key}")
        client.upload(bucket, key, local, None)
    return f"s3://{bucket}/{key}"
