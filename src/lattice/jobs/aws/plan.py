"""Everything that a job makes on AWS, as values: what is called to make it, and to be rid of it. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lattice.jobs.aws import sections, userdata
from lattice.jobs.aws.sections import Section
from lattice.jobs.aws.specs import RDZV, WORKER, InstanceSpec, Specs, architecture
from lattice.jobs.job import Job

LEASE = timedelta(hours=1)
"""how long instances live that nobody looks after; moved on while somebody does"""
RETENTION_DAYS = 30
IMAGES = {
    ("none", "x86_64"): "/aws/service/ecs/optimized-ami/amazon-linux-2023/recommended/image_id",
    ("none", "arm64"): "/aws/service/ecs/optimized-ami/amazon-linux-2023/arm64/recommended/image_id",
    ("gpu", "x86_64"): "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id",
    ("gpu", "arm64"): "/aws/service/ecs/optimized-ami/amazon-linux-2023/gpu/recommended/image_id",
}
"""public parameters that name the newest system image with Docker, and with NVIDIA's drivers"""
SECRETS = ("certificate", "key", "password")
ORDER, OUTCOME, KILL, JOURNALS, NOTES = "job.json", "outcome.json", "kill", "nodes/", "notes/"
"""what is in a submission's folder in S3: what nodes are told; how the run ended; that it shall end; what each node's
agent wrote down; words of a node's trouble or end"""
SUBMISSION = "lattice:submission"
"""the tag by which one knows one's own"""


@dataclass(frozen=True, slots=True)
class Call:
    """One request to AWS."""

    service: str
    operation: str
    """as boto3 names it"""
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that a job makes."""

    kind: str
    name: str
    make: Call
    undo: Call | None = None
    already: tuple[str, ...] = ()
    """error codes that mean that it is there"""
    gone: tuple[str, ...] = ()
    """error codes that mean that there is none"""
    find: Call | None = None
    """what lists it, if that has to be asked before it is undone"""
    listed: str = ""
    """the key of that list"""


@dataclass(frozen=True, slots=True)
class Names:
    """What everything of a submission is called."""

    job: str
    submission: str
    bucket: str
    prefix: str
    sections: tuple[str, ...] = (WORKER,)
    """of nodes: the job's roles"""

    @property
    def rdzv(self) -> str:
        """The group of etcd's instance."""
        return f"{self.job}_rdzv"

    def group(self, section: str = WORKER) -> str:
        """The group of workers, or of a role's."""
        return f"{self.job}_{section}"

    @property
    def groups(self) -> tuple[str, ...]:
        """All groups of nodes."""
        return tuple(self.group(section) for section in self.sections)

    @property
    def everything(self) -> tuple[str, ...]:
        """All groups of instances."""
        return (*self.groups, self.rdzv)

    @property
    def log_group(self) -> str:
        """Where CloudWatch keeps the logs."""
        return f"/lattice/{self.job}"

    @property
    def folder(self) -> str:
        """The keys of this submission in S3 begin with this."""
        return f"{self.prefix}/{self.job}/{self.submission}".lstrip("/")

    def order(self, section: Section) -> str:
        """The key of what the nodes of a section are told."""
        return f"{self.folder}/{ORDER if section.role is None else f'roles/{section.name}.json'}"

    def code(self, digest: str) -> str:
        """The key of the code in S3: of the job, not of the submission, so that it goes there once."""
        return f"{self.prefix}/{self.job}/{digest}.tar.gz".lstrip("/")

    def secret(self, name: str) -> str:
        """The parameter of a secret."""
        return f"/lattice/{self.submission}/{name}"


def names(job: Job, submission: str, specs: Specs) -> Names:
    """Name everything."""
    spec = specs.worker
    return Names(job.name, submission, spec.s3_bucket, spec.s3_prefix.strip("/"), sections.names(job))


def resources(
    job: Job,
    specs: Specs,
    called: Names,
    *,
    region: str,
    images: Mapping[str, str],
    code: userdata.CodeAt,
    secrets: Mapping[str, str],
    deadline: datetime | str,
) -> list[Resource]:
    """
    Give all that a submission makes, in the order of making; being rid of it goes backwards.

    :param job: the job
    :param specs: its instances
    :param called: its names
    :param region: where
    :param images: system images by section
    :param code: where the code is
    :param secrets: by name in :data:`SECRETS`; they go to the parameter store and nowhere else
    :param deadline: when the groups end if nobody looks after them; words where nothing is made
    """
    tags = {"lattice:job": job.name, SUBMISSION: called.submission}
    found = sections.sections(job, specs)
    rdzv = userdata.rdzv(specs, called, region)
    made = [
        *_log_group(called, tags),
        *(_secret(called, name, secrets[name], tags) for name in SECRETS),
        *(_order(called, called.order(one), sections.order(job, called.submission, one, code)) for one in found),
        *_group(specs.rdzv, called, RDZV, images[RDZV], rdzv, tags, deadline),
    ]
    for one in found:
        data = userdata.worker(specs, called, region, one.name, sections.facts(job, one))
        made += _group(one.spec, called, one.name, images[one.name], data, tags, deadline)
    made.append(Resource("size", called.rdzv, resize(called.rdzv, 1, 1)))
    sizes = ((called.group(one.name), one) for one in found)
    return [*made, *(Resource("size", group, resize(group, one.begins, one.most)) for group, one in sizes)]


def shown(resource: Resource) -> tuple[str, ...]:
    """Write what makes something for a reader: the call, and the texts that it carries."""
    texts: list[str] = []

    def readable(value: Any) -> Any:
        if isinstance(value, Mapping):
            found = {key: readable(one) for key, one in value.items() if key not in ("UserData", "Body")}
            for key in ("UserData", "Body"):
                if key in value:
                    text = base64.b64decode(value[key]) if key == "UserData" else value[key]
                    texts.extend([f"{key}:", *(f"  {line}" for line in text.decode().splitlines())])
            return found
        return [readable(one) for one in value] if isinstance(value, list) else value

    arguments = json.dumps(readable(resource.make.arguments), indent=1, default=str)
    return (*f"{resource.make.service} {resource.make.operation} {arguments}".splitlines(), *texts)


def image_parameter(spec: InstanceSpec) -> str:
    """Name the public parameter that holds the system image for an instance."""
    return IMAGES[spec.accelerator, architecture(spec.instance_type)]


def lease(group: str, until: datetime | str) -> Call:
    """Give the call that lets a group live until then: AWS itself ends it at that time."""
    return Call(
        "autoscaling",
        "put_scheduled_update_group_action",
        {
            "AutoScalingGroupName": group,
            "ScheduledActionName": f"{group}-lease",
            "StartTime": until,
            "MinSize": 0,
            "MaxSize": 0,
            "DesiredCapacity": 0,
        },
    )


def put(bucket: str, key: str, body: bytes) -> Call:
    """Give the call that writes an object."""
    sealed = {"ServerSideEncryption": "AES256"}
    return Call("s3", "put_object", {"Bucket": bucket, "Key": key, "Body": body, **sealed})


def describe(group: str) -> Call:
    """Give the call that asks about a group."""
    return Call("autoscaling", "describe_auto_scaling_groups", {"AutoScalingGroupNames": [group]})


def resize(group: str, desired: int, maximum: int) -> Call:
    """Give the call that changes the size of a group. How few nodes a job can do with is the agents' affair."""
    sizes = {"MinSize": 0, "MaxSize": maximum, "DesiredCapacity": desired}
    return Call("autoscaling", "update_auto_scaling_group", {"AutoScalingGroupName": group, **sizes})


def _log_group(called: Names, tags: Mapping[str, str]) -> list[Resource]:
    # Not deleted with the job: whoever wants to know why it failed looks there afterwards.
    named = {"logGroupName": called.log_group}
    made = Call("logs", "create_log_group", {**named, "tags": {"lattice:job": tags["lattice:job"]}})
    kept = Call("logs", "put_retention_policy", {**named, "retentionInDays": RETENTION_DAYS})
    return [
        Resource("log group", called.log_group, made, already=("ResourceAlreadyExistsException",)),
        Resource("retention of", called.log_group, kept),
    ]


def _order(called: Names, key: str, body: bytes) -> Resource:
    forget = Call("s3", "delete_object", {"Bucket": called.bucket, "Key": key})
    return Resource("order", f"s3://{called.bucket}/{key}", put(called.bucket, key, body), forget)


def _secret(called: Names, name: str, value: str, tags: Mapping[str, str]) -> Resource:
    parameter = called.secret(name)
    return Resource(
        "secret",
        parameter,
        Call(
            "ssm",
            "put_parameter",
            {
                "Name": parameter,
                "Value": value,
                "Type": "SecureString",
                "Tags": [{"Key": key, "Value": text} for key, text in tags.items()],
            },
        ),
        Call("ssm", "delete_parameter", {"Name": parameter}),
        already=("ParameterAlreadyExists",),
        gone=("ParameterNotFound",),
    )


def _group(
    spec: InstanceSpec,
    called: Names,
    section: str,
    image: str,
    data: str,
    tags: Mapping[str, str],
    deadline: datetime | str,
) -> list[Resource]:
    template, group = f"{called.submission}-{section}", called.group(section)
    tagged = {**tags, "Name": group, "lattice:section": section}
    return [
        Resource(
            "launch template",
            template,
            Call(
                "ec2",
                "create_launch_template",
                {
                    "LaunchTemplateName": template,
                    "LaunchTemplateData": _template(spec, image, data, tagged),
                    "TagSpecifications": [_tags("launch-template", tagged)],
                },
            ),
            Call("ec2", "delete_launch_template", {"LaunchTemplateName": template}),
            already=("InvalidLaunchTemplateName.AlreadyExistsException",),
            gone=("InvalidLaunchTemplateName.NotFoundException",),
            find=Call(
                "ec2",
                "describe_launch_templates",
                {"Filters": [{"Name": "launch-template-name", "Values": [template]}]},
            ),
            listed="LaunchTemplates",
        ),
        Resource(
            "group",
            group,
            Call(
                "autoscaling",
                "create_auto_scaling_group",
                {
                    "AutoScalingGroupName": group,
                    "LaunchTemplate": {"LaunchTemplateName": template, "Version": "$Latest"},
                    # It gets its size when it has its lease: nobody can forget it in between.
                    "MinSize": 0,
                    "MaxSize": 0,
                    "DesiredCapacity": 0,
                    "VPCZoneIdentifier": ",".join(spec.subnets),
                    "Tags": [
                        {
                            "Key": key,
                            "Value": value,
                            "PropagateAtLaunch": True,
                            "ResourceId": group,
                            "ResourceType": "auto-scaling-group",
                        }
                        for key, value in tagged.items()
                    ],
                },
            ),
            Call("autoscaling", "delete_auto_scaling_group", {"AutoScalingGroupName": group, "ForceDelete": True}),
            already=("AlreadyExists", "AlreadyExistsFault"),
            gone=("ResourceInUse", "ScalingActivityInProgress"),  # it is being deleted
            find=describe(group),
            listed="AutoScalingGroups",
        ),
        Resource("lease", group, lease(group, deadline)),
    ]


def _template(spec: InstanceSpec, image: str, data: str, tags: Mapping[str, str]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "ImageId": image,
        "InstanceType": spec.instance_type,
        "IamInstanceProfile": {"Name": spec.instance_role},
        "SecurityGroupIds": list(spec.security_groups),
        "UserData": base64.b64encode(data.encode()).decode(),
        # Containers with the host's network are one hop away; without a token nobody gets anything.
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 2, "HttpEndpoint": "enabled"},
        "BlockDeviceMappings": [
            {
                "DeviceName": "/dev/xvda",
                "Ebs": {
                    "VolumeSize": spec.ebs_volume_gb,
                    "VolumeType": "gp3",
                    "Encrypted": True,
                    "DeleteOnTermination": True,
                },
            }
        ],
        "InstanceInitiatedShutdownBehavior": "terminate",
        "TagSpecifications": [_tags("instance", tags), _tags("volume", tags)],
    }
    if spec.key_pair:
        made["KeyName"] = spec.key_pair
    if spec.max_spot_price:
        made["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"MaxPrice": spec.max_spot_price, "SpotInstanceType": "one-time"},
        }
    return made


def _tags(kind: str, tags: Mapping[str, str]) -> dict[str, Any]:
    return {"ResourceType": kind, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
