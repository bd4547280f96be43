"""One submission on AWS: what of it there is, made and removed."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from lattice.errors import LatticeError, UsageError
from lattice.jobs.aws import plan, sections, specs
from lattice.jobs.aws.client import AwsFailed, Client
from lattice.jobs.aws.plan import LEASE, Call, Resource
from lattice.jobs.aws.sections import Section
from lattice.jobs.aws.userdata import CodeAt
from lattice.jobs.aws.views import Part, Seen, last_words, parse_note
from lattice.jobs.backends import Say
from lattice.jobs.index import Record

POLL = 2.0
GONE_TIMEOUT = 900.0
"""seconds that a group has to end its instances"""
PRESENT = ("Pending", "Pending:Wait", "Pending:Proceed", "InService")
ASKED = 3
"""instances at most whose consoles are read to tell why they do not come up"""
NO_CODE: dict[str, Any] = {"url": "", "digest": "", "archive": False, "script": ""}


class Deployment:
    """
    A submission.

    :param record: what is remembered of it
    :param client: AWS in its region
    :param cache: objects in S3 by key and version, as they were read last
    """

    def __init__(self, record: Record, client: Client, cache: dict[tuple[str, str], bytes]) -> None:
        self.record = record
        self.client = client
        self.specs = specs.parse(record.facts["specs"])
        self.called = plan.names(record.job, record.submission, self.specs)
        self._cache = cache

    def resources(self) -> list[Resource]:
        """Give all that it makes, in order."""
        facts = self.record.facts
        return plan.resources(
            self.record.job,
            self.specs,
            self.called,
            region=facts["region"],
            images=facts["images"],
            code=CodeAt(**(facts.get("code") or NO_CODE)),
            secrets=facts["secrets"],
            deadline=datetime.now(UTC) + LEASE,
        )

    def make(self, say: Say) -> None:
        """
        Make what is missing.

        :raises UsageError: somebody else has a job of this name
        """
        begun = bool(self.keys(plan.JOURNALS))
        for resource in self.resources():
            if resource.kind == "size" and begun:
                continue  # it was complete, and has run
            say(f"{resource.kind} {resource.name}")
            if resource.kind != "group" or self._is_free(resource, say):
                self.client.ensure(resource)

    def check_names(self, say: Say) -> None:
        """
        See that its groups can have their names.

        :raises UsageError: somebody else has a job of this name
        """
        for resource in self.resources():
            if resource.kind == "group":
                self._is_free(resource, say)

    def undo(self, say: Say, *, groups_last: bool = False) -> list[str]:
        """
        Remove all of it, and tell what could not be removed.

        :param groups_last: so that whoever finds no groups knows that there is nothing else, either
        """
        if "images" not in self.record.facts:
            return []
        left, ending = [], []
        resources = list(reversed(self.resources()))
        if groups_last:
            resources.sort(key=lambda resource: resource.kind == "group")
        for resource in resources:
            try:
                if resource.kind == "group":
                    if not self._is_own(self.client.find(resource)):
                        continue
                    ending.append(resource)
                if self.client.undo(resource):
                    say(f"deleting {resource.kind} {resource.name}")
            except LatticeError as error:
                left.append(f"  {resource.kind} {resource.name}: {error}")
        for resource in ending if not left else ():
            try:
                self._wait_gone(resource, say)
            except LatticeError as error:
                left.append(f"  {resource.kind} {resource.name}: {error}")
        return left

    def parts(self) -> list[Part]:
        """Look at its workers, role by role."""
        job, objects = self.record.job, self.objects()
        nodes = self.record.facts.get("nodes")
        trouble = self.etcd().trouble
        found = []
        for one in sections.sections(job, self.specs):
            counts = nodes if isinstance(nodes, dict) else {one.name: nodes}
            seats = counts.get(one.name)
            role = "" if one.role is None else one.name
            seen = self._seen(one, role, objects, trouble)
            found.append(Part(seen, one.most if seats is None else seats, one.most, role))
        return found

    def etcd(self) -> Seen:
        """Look at etcd's instance."""
        present, wanted, trouble = self._instances(self.called.rdzv)
        return Seen(present, wanted, trouble=trouble)

    def _seen(self, section: Section, role: str, objects: Mapping[str, bytes], trouble_of_etcd: str) -> Seen:
        folder = f"{role}/" if role else ""
        present, wanted, trouble = self._instances(self.called.group(section.name))
        notes = {name: parse_note(body) for name, body in _named(objects, plan.NOTES + folder, ".json").items()}
        if role and (etcd := objects.get(f"{plan.NOTES}{specs.RDZV}.json")) is not None:
            notes[specs.RDZV] = parse_note(etcd)
        journals = _named(objects, plan.JOURNALS + folder, ".jsonl")
        if trouble_of_etcd:
            notes[specs.RDZV] = {"words": trouble_of_etcd}
        silent = sorted(set(present) - journals.keys() - notes.keys())
        for name in silent[:ASKED]:
            notes[name] = {"words": self.console(name)}
        return Seen(present, wanted, journals, notes, trouble, section.ends)

    def _instances(self, name: str) -> tuple[tuple[str, ...], int, str]:
        """Tell which instances of a group are there, how many should be, and why fewer are."""
        groups = self.groups(name)
        everybody = [one for group in groups for one in group["Instances"]]
        present = tuple(one["InstanceId"] for one in everybody if one["LifecycleState"] in PRESENT)
        wanted = sum(group["DesiredCapacity"] for group in groups if not group.get("Status"))
        return present, wanted, self.trouble(name) if len(present) < wanted else ""

    def groups(self, name: str) -> list[dict[str, Any]]:
        """Describe a group, if it is ours."""
        found: list[dict[str, Any]] = self.client.call(plan.describe(name))["AutoScalingGroups"]
        return found if self._is_own(found) else []

    def exist(self) -> bool:
        """Tell whether one of its groups is there."""
        return any(self.groups(name) for name in self.called.everything)

    def trouble(self, group: str) -> str:
        """Tell why AWS starts no instance of a group; empty if it has not said so."""
        asked = Call(
            "autoscaling",
            "describe_scaling_activities",
            {"AutoScalingGroupName": group, "MaxRecords": 10},
        )
        try:
            activities = self.client.call(asked)["Activities"]
        except AwsFailed:
            return ""
        newest = activities[0] if activities else {}
        return str(newest.get("StatusMessage", "")) if newest.get("StatusCode") == "Failed" else ""

    def console(self, instance: str) -> str:
        """Tell what an instance that has not come up said last."""
        try:
            asked = {"InstanceId": instance, "Latest": True}
            found = self.client.call(Call("ec2", "get_console_output", asked))
        except AwsFailed:
            return ""
        return last_words(found.get("Output", ""))

    def objects(self) -> dict[str, bytes]:
        """Read what is in its folder in S3; what has not changed is not read again."""
        prefix = f"{self.called.folder}/"
        found = {}
        for one in self.client.pages(self._list(prefix), "Contents"):
            name = one["Key"].removeprefix(prefix)
            if name.startswith((plan.JOURNALS, plan.NOTES)):
                version = (one["Key"], one["ETag"])
                if version not in self._cache:
                    self._cache[version] = self.client.read(self.called.bucket, one["Key"])
                found[name] = self._cache[version]
        return found

    def keys(self, name: str = "") -> list[str]:
        """List what is in its folder in S3."""
        return [one["Key"] for one in self.client.pages(self._list(f"{self.called.folder}/{name}"), "Contents")]

    def clear(self, *, keep_code: bool = False) -> None:
        """Delete what it has in S3; all versions of its code, too, if no other submission of that name is there."""
        prefix = self.called.folder.removesuffix(self.called.submission)
        keys = [one["Key"] for one in self.client.pages(self._list(prefix), "Contents")]
        other = re.compile(rf"{re.escape(prefix + self.called.job)}-[0-9a-f]{{8}}/")
        own = [key for key in keys if key.startswith(f"{self.called.folder}/")]
        if not keep_code and not any(other.match(key) for key in keys if key not in own):
            code = re.compile(rf"{re.escape(prefix)}[0-9a-f]{{64}}\.tar\.gz")
            own += [key for key in keys if code.fullmatch(key)]
            self.abort_uploads(prefix, code)
        for key in own:
            self.delete(key)

    def abort_uploads(self, prefix: str, wanted: re.Pattern[str] | None = None) -> None:
        """
        Delete the parts of uploads that did not come to their end.

        :param prefix: of their keys
        :param wanted: what those keys are like; None for all
        """
        for one in self.client.pages(self._list(prefix, "list_multipart_uploads"), "Uploads"):
            if wanted is None or wanted.fullmatch(one["Key"]):
                half = {"Bucket": self.called.bucket, "Key": one["Key"], "UploadId": one["UploadId"]}
                self.client.call(Call("s3", "abort_multipart_upload", half))

    def clear_logs(self) -> None:
        """Delete what its instances wrote, and the group of logs with the last of it."""
        named = {"logGroupName": self.called.log_group}
        listed = Call("logs", "describe_log_streams", named)
        try:
            streams = [one["logStreamName"] for one in self.client.pages(listed, "logStreams")]
            own = [name for name in streams if name.startswith(f"{self.called.submission}/")]
            for name in own:
                self.client.call(Call("logs", "delete_log_stream", {**named, "logStreamName": name}))
            if len(own) == len(streams):
                self.client.call(Call("logs", "delete_log_group", named))
        except AwsFailed as error:
            if error.code != "ResourceNotFoundException":
                raise

    def delete(self, key: str) -> None:
        """Delete an object in S3; one that is not there is fine."""
        self.client.call(Call("s3", "delete_object", {"Bucket": self.called.bucket, "Key": key}))

    def renew(self) -> None:
        """Let it live a while longer."""
        for group in self.called.everything:
            self.client.call(plan.lease(group, datetime.now(UTC) + LEASE))

    def _list(self, prefix: str, operation: str = "list_objects_v2") -> Call:
        return Call("s3", operation, {"Bucket": self.called.bucket, "Prefix": prefix})

    def _is_own(self, groups: list[dict[str, Any]]) -> bool:
        tags = {tag["Key"]: tag["Value"] for group in groups for tag in group.get("Tags", ())}
        return tags.get(plan.SUBMISSION) == self.called.submission

    def _is_free(self, resource: Resource, say: Say) -> bool:
        """Tell whether a group is still to be made."""
        found = self.client.find(resource)
        if found and found[0].get("Status"):  # an older one, on its way out
            self._wait_gone(resource, say)
            found = []
        if found and not self._is_own(found):
            raise UsageError(
                f"there is a group {resource.name} already that this submission did not make: somebody else runs a job "
                f"{self.called.job!r} in this account. Take another --name, or end that one where it was submitted"
            )
        return not found

    def _wait_gone(self, resource: Resource, say: Say) -> None:
        deadline = time.monotonic() + GONE_TIMEOUT
        told = -1
        while found := self.client.find(resource):
            count = len(found[0]["Instances"])
            if count != told:
                say(f"waiting for {count} instances of {resource.name} to end")
                told = count
            if time.monotonic() > deadline:
                raise LatticeError(f"the group {resource.name} is still there after {GONE_TIMEOUT:.0f}s")
            time.sleep(POLL)


def _named(objects: Mapping[str, bytes], prefix: str, suffix: str) -> dict[str, bytes]:
    return {
        name.removeprefix(prefix).removesuffix(suffix): body
        for name, body in objects.items()
        if name.startswith(prefix)
    }
