"""What jobs need in an AWS account, made once, as one CloudFormation stack."""

from __future__ import annotations

import json
import time
from importlib.resources import files
from typing import Any

from lattice.errors import LatticeError
from lattice.jobs.aws.client import AwsFailed, Client
from lattice.jobs.aws.plan import Call
from lattice.jobs.aws.specs import GPU_FAMILIES
from lattice.jobs.backends import Say

STACK = "lattice"
POLL = 5.0
TIMEOUT = 900.0
Made = dict[str, str]
"""outputs of the stack, by name"""


def setup(region: str, bucket: str, efs: str, say: Say) -> Made:
    """
    Make the stack, or find it.

    :param region: empty for what the user's AWS configuration says
    :param bucket: one that is there; empty to make one
    :param efs: a file system that is there; empty to make one
    :raises LatticeError: it could not be made; nothing of it is left
    """
    client = Client(region)
    arguments = {
        "StackName": STACK,
        "TemplateBody": json.dumps(template(bucket, efs)),
        "Capabilities": ["CAPABILITY_IAM"],
        "OnFailure": "DELETE",
        "Tags": [{"Key": "lattice", "Value": "setup"}],
    }
    try:
        client.call(Call("cloudformation", "create_stack", arguments))
        say(f"making the stack {STACK} in {client.region}; this takes some minutes")
    except AwsFailed as error:
        if error.code != "AlreadyExistsException":
            raise
        say(f"the stack {STACK} is there already in {client.region}")
    return {**_outputs(client), "Region": client.region}


def _outputs(client: Client) -> Made:
    deadline = time.monotonic() + TIMEOUT
    while True:
        found = client.call(Call("cloudformation", "describe_stacks", {"StackName": STACK}))["Stacks"][0]
        state = found["StackStatus"]
        if state.endswith("_COMPLETE") and not state.startswith(("DELETE", "ROLLBACK")):
            return {one["OutputKey"]: one["OutputValue"] for one in found["Outputs"]}
        if not state.endswith("_IN_PROGRESS") or "ROLLBACK" in state or "DELETE" in state:
            why = found.get("StackStatusReason", "its events tell why")
            raise LatticeError(f"the stack {STACK} in {client.region} is {state}: {why}")
        if time.monotonic() > deadline:
            raise LatticeError(f"the stack {STACK} is still {state} after {TIMEOUT:.0f}s; run petctl setup again")
        time.sleep(POLL)


def specs_of(made: Made, *, instance_type: str, docker_image: str) -> dict[str, Any]:
    """Write what was made as a specs file."""
    common = {
        "instance_role": made["InstanceProfile"],
        "subnets": [made["Subnet0"], made["Subnet1"]],
        "security_groups": [made["SecurityGroup"]],
    }
    gpu = "gpu" if GPU_FAMILIES.match(instance_type) else "none"
    return {
        "region": made["Region"],
        "rdzv": {"instance_type": "c5.large", "accelerator": "none", **common},
        "worker": {
            "instance_type": instance_type,
            "accelerator": gpu,
            **common,
            "docker_image": docker_image or "<YOUR DOCKER IMAGE>",
            "s3_bucket": made["Bucket"],
            "s3_prefix": "lattice",
            "efs_file_system_id": made["FileSystem"],
        },
    }


def template(bucket: str, efs: str) -> dict[str, Any]:
    """Write the stack down; pure."""
    resources = {
        "Gateway": _made("EC2::InternetGateway"),
        "Network": _made("EC2::VPC", CidrBlock="10.77.0.0/16", EnableDnsHostnames=True, EnableDnsSupport=True),
        "Attachment": _made("EC2::VPCGatewayAttachment", VpcId=_ref("Network"), InternetGatewayId=_ref("Gateway")),
        "Routes": _made("EC2::RouteTable", VpcId=_ref("Network")),
        "Outwards": {
            **_made(
                "EC2::Route",
                DestinationCidrBlock="0.0.0.0/0",
                GatewayId=_ref("Gateway"),
                RouteTableId=_ref("Routes"),
            ),
            "DependsOn": "Attachment",
        },
        # Nobody from outside: who wants to log in adds a rule for his own address.
        "SecurityGroup": _made("EC2::SecurityGroup", GroupDescription="nodes of Lattice jobs", VpcId=_ref("Network")),
        "Among": _made(
            "EC2::SecurityGroupIngress",
            GroupId=_group("SecurityGroup"),
            IpProtocol="-1",
            SourceSecurityGroupId=_group("SecurityGroup"),
        ),
        "Role": _made("IAM::Role", AssumeRolePolicyDocument=_trust(), Policies=[_policy(bucket)]),
        "InstanceProfile": _made("IAM::InstanceProfile", Roles=[_ref("Role")]),
    }
    for number in (0, 1):
        zone = {"Fn::Select": [number, {"Fn::GetAZs": ""}]}
        resources[f"Subnet{number}"] = _made(
            "EC2::Subnet",
            VpcId=_ref("Network"),
            CidrBlock=f"10.77.{number * 64}.0/18",
            MapPublicIpOnLaunch=True,
            AvailabilityZone=zone,
        )
        resources[f"Route{number}"] = _made(
            "EC2::SubnetRouteTableAssociation", RouteTableId=_ref("Routes"), SubnetId=_ref(f"Subnet{number}")
        )
        resources[f"Mount{number}"] = _made(
            "EFS::MountTarget",
            FileSystemId=efs or _ref("FileSystem"),
            SubnetId=_ref(f"Subnet{number}"),
            SecurityGroups=[_group("SecurityGroup")],
        )
    if not efs:
        resources["FileSystem"] = {**_made("EFS::FileSystem", Encrypted=True), "DeletionPolicy": "Retain"}
    if not bucket:
        resources["Bucket"] = {**_made("S3::Bucket"), "DeletionPolicy": "Retain"}
    outputs = {
        **{name: _ref(name) for name in ("Subnet0", "Subnet1", "InstanceProfile")},
        "SecurityGroup": _group("SecurityGroup"),
        "Bucket": bucket or _ref("Bucket"),
        "FileSystem": efs or _ref("FileSystem"),
    }
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "What Lattice jobs need; petctl setup made it",
        "Resources": resources,
        "Outputs": {name: {"Value": value} for name, value in outputs.items()},
    }


def _policy(bucket: str) -> dict[str, Any]:
    text = files("lattice.jobs.aws").joinpath("instance_policy.json").read_text(encoding="utf-8")
    allowed = json.loads(text.replace("BUCKET", "${Bucket}"))
    filled = _filled(allowed, {"Bucket": bucket or _ref("Bucket")})
    return {"PolicyName": "lattice-instance", "PolicyDocument": filled}


def _filled(value: Any, names: dict[str, Any]) -> Any:
    """Have CloudFormation put names into texts."""
    if isinstance(value, dict):
        return {key: _filled(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, names) for one in value]
    return {"Fn::Sub": [value, names]} if "${Bucket}" in value else value


def _trust() -> dict[str, Any]:
    who = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    return {"Version": "2012-10-17", "Statement": [who]}


def _made(kind: str, **properties: Any) -> dict[str, Any]:
    return {"Type": f"AWS::{kind}", "Properties": properties}


def _ref(name: str) -> dict[str, str]:
    return {"Ref": name}


def _group(name: str) -> dict[str, Any]:
    return {"Fn::GetAtt": [name, "GroupId"]}
