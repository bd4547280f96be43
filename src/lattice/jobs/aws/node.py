"""This instance, as its user data, its metadata service and the job's folder in S3 tell of it."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from lattice.errors import LatticeError
from lattice.jobs.aws import plan
from lattice.jobs.aws.client import AwsFailed, Client
from lattice.jobs.aws.plan import LEASE, Call
from lattice.jobs.progress import NodeView, read_journal

METADATA = "http://169.254.169.254/latest"
INSISTENCE = 120.0
"""seconds for what must not be left undone because of a moment's trouble"""
PAUSE = 5.0


class Node:
    """One instance of a job."""

    def __init__(self, path: Path) -> None:
        """
        Read what the user data left.

        :param path: the file of facts; all that belongs to the node is beside it
        """
        self.folder = path.parent
        self.names: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        self.client = Client(self.names["region"])

    @cached_property
    def name(self) -> str:
        """The instance's id."""
        return metadata("meta-data/instance-id")

    @property
    def journal_key(self) -> str:
        """Where the node's journal is kept, in the job's folder."""
        return f"{plan.JOURNALS}{self._folder_of_role}{self.name}.jsonl"

    @property
    def order_key(self) -> str:
        """What this node is told, in the job's folder."""
        return f"roles/{self.names['role']}.json" if "role" in self.names else plan.ORDER

    @property
    def workers(self) -> list[str]:
        """All groups of the job's nodes."""
        return list(self.names.get("groups") or [self.names["workers"]])

    @property
    def ends(self) -> str:
        """When the end of this node's run is the job's."""
        return str(self.names.get("ends_job", "always"))

    @property
    def _folder_of_role(self) -> str:
        return f"{self.names['role']}/" if "role" in self.names else ""

    def secret(self, name: str) -> str:
        """Read a secret of the job."""
        asked = {"Name": self.names["secrets"] + name, "WithDecryption": True}
        return str(self.client.call(Call("ssm", "get_parameter", asked))["Parameter"]["Value"])

    def groups(self, name: str) -> list[dict[str, Any]]:
        """Describe a group; empty if there is none."""
        found: list[dict[str, Any]] = self.client.call(plan.describe(name))["AutoScalingGroups"]
        return found

    def get(self, name: str) -> bytes:
        """Read something in the job's folder in S3."""
        return self.client.read(self.names["bucket"], f"{self.names['folder']}/{name}")

    def put(self, name: str, body: bytes) -> bool:
        """Leave something in the job's folder in S3."""
        key = f"{self.names['folder']}/{name}"
        self.client.call(plan.put(self.names["bucket"], key, body))
        return True

    def has(self, name: str) -> bool:
        """Tell whether something is in the job's folder in S3."""
        asked = {"Bucket": self.names["bucket"], "Key": f"{self.names['folder']}/{name}"}
        try:
            self.client.call(Call("s3", "head_object", asked))
        except AwsFailed as error:
            # Who may not list a bucket is told 403 of what is not there.
            if error.code in ("404", "NoSuchKey", "NotFound", "403"):
                return False
            raise
        return True

    def note(self, facts: Mapping[str, Any], name: str = "") -> bool:
        """Leave word of trouble, or of the end, for whoever asks how the job stands."""
        path = f"{plan.NOTES}{name or self._folder_of_role + self.name}.json"
        return self.put(path, json.dumps(dict(facts)).encode())

    def read(self, name: str) -> bytes:
        """Read a file of this node; empty if there is none."""
        try:
            return (self.folder / name).read_bytes()
        except OSError:
            return b""

    def journal(self) -> bytes:
        """Read what the agent wrote down."""
        return self.read("journal.jsonl")

    def view(self) -> NodeView:
        """Tell how the agent stands."""
        return read_journal(self.journal().splitlines(), NodeView(0))

    def lease_interval(self) -> float:
        """Tell how often this node moves the lease: the leading one twice as often, so that the others seldom need."""
        ranks = self.view().ranks
        return LEASE.total_seconds() / (4 if ranks and ranks[0] == 0 and self.ends == "always" else 2)


def metadata(path: str) -> str:
    """Ask the instance metadata service, with a token as its second version wants."""
    base = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", METADATA).rstrip("/").removesuffix("/latest") + "/latest"
    seconds = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    asked = urllib.request.Request(f"{base}/api/token", method="PUT", headers=seconds)
    with urllib.request.urlopen(asked, timeout=5) as answer:
        token = answer.read().decode()
    asked = urllib.request.Request(f"{base}/{path}", headers={"X-aws-ec2-metadata-token": token})
    with urllib.request.urlopen(asked, timeout=5) as answer:
        return str(answer.read().decode())


def interrupted() -> bool:
    """Tell whether AWS has said that it will take this spot instance away."""
    try:
        return bool(metadata("meta-data/spot/instance-action"))
    except OSError:
        return False


def attempt(action: Callable[[], Any], *, again: bool = False) -> bool:
    """
    Do what may fail without harm: it is done again soon, or what AWS keeps by itself is the backstop.

    :param again: try for a while: there is no later
    :return: whether it was done, and gave something
    """
    deadline = time.monotonic() + (INSISTENCE if again else 0.0)
    while True:
        try:
            return bool(action())
        except (LatticeError, OSError) as error:
            print(f"lattice: {error}", file=sys.stderr, flush=True)
            if time.monotonic() >= deadline or (isinstance(error, AwsFailed) and error.final):
                return False
        time.sleep(PAUSE)


def insist(action: Callable[[], Any]) -> bool:
    """Do what has no later."""
    return attempt(action, again=True)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file, whole or not at all."""
    fresh = path.with_name(f".{path.name}")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)
