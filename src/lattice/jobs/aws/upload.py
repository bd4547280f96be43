"""The code of a job on its way to S3: by digest, so that what is there already is not sent again."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from lattice.jobs import archive
from lattice.jobs.aws.deployment import Deployment
from lattice.jobs.aws.plan import Call
from lattice.jobs.aws.userdata import CodeAt
from lattice.jobs.backends import Save, Say
from lattice.jobs.index import Record
from lattice.jobs.job import Code
from lattice.jobs.roles import scripts
from lattice.launching.sync.manifest import shown

ARCHIVES = (".tar", ".tar.gz", ".tgz")


def destination(code: Code, url: str, digest: str) -> CodeAt:
    """
    Tell where the nodes find the code.

    :param code: what the user named
    :param url: of the archive, if one has to be made
    :param digest: of that archive
    """
    if not code.upload:
        path = f"{code.source.rstrip('/')}/{code.script}" if code.script else code.source
        return CodeAt("", "", archive=False, script=path)
    if code.source.startswith("s3://"):
        return CodeAt(code.source, "", archive=code.source.endswith(ARCHIVES), script=code.script)
    return CodeAt(url, digest, archive=True, script=code.script or Path(code.source).name)


def send(record: Record, here: Deployment, save: Save, say: Say) -> Record:
    """Send the code unless it is there, and remember where it is."""
    code = record.job.code
    if not code.upload or code.source.startswith("s3://"):
        return _saved(record, destination(code, "", ""), save)
    with archive.packed(code, say, scripts(record.job)) as packed:
        key = here.called.code(packed.digest)
        before = record.facts.get("code", {}).get("digest")
        if before and before != packed.digest:  # what half a submission sent, of files that have changed since
            here.delete(here.called.code(before))
            here.abort_uploads(here.called.code(before))
        at = destination(code, f"s3://{here.called.bucket}/{key}", packed.digest)
        record = _saved(record, at, save)
        listed = Call("s3", "list_objects_v2", {"Bucket": here.called.bucket, "Prefix": key})
        if any(one["Key"] == key for one in here.client.pages(listed, "Contents")):
            say(f"the code is in s3://{here.called.bucket} already")
        else:
            say(f"uploading the code, {shown(packed.size)}")
            here.client.upload(here.called.bucket, key, packed.path, archive.Sending(packed.size, say).sent)
    return record


def _saved(record: Record, code: CodeAt, save: Save) -> Record:
    record = record.with_facts(code=asdict(code))
    save(record)
    return record
