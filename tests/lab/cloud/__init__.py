"""A cloud on this machine: moto as AWS, and for every instance a host of its own that runs its user data."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cloud.metadata import CUT, NOTICE
from tests.lab.scripts import HERE, call, require
from tests.waiting import eventually, patience

ROOT = HERE.parents[1]
REGION = "us-west-2"
BUCKET = "lattice-tests"
EFS = "fs-0123abcd"
PLAIN, WRAPPED = "plain", "wrapped"
"""images: one whose entry point is ``lattice run``, and one with an entry point of its own"""
HOST_LOGS = ("host.log", "user-data.log", "engine.log")
DOCKERFILES = {
    PLAIN: 'ENTRYPOINT ["python", "-m", "lattice", "run"]\n',
    WRAPPED: (
        "ENV LATTICE_NPROC_PER_NODE=2\n"
        'ENTRYPOINT ["/bin/sh", "-c", "WRAPPED=yes exec python -m lattice run \\"$@\\"", "entry"]\n'
    ),
}
FIRST_LINES = """\
FROM local/base
ENV AWS_ENDPOINT_URL=http://10.77.0.1 PYTHONPATH=/opt/lattice
COPY lattice /opt/lattice/lattice
RUN python -m compileall -q /opt/lattice
"""


@dataclass(frozen=True)
class Cloud:
    """A cloud that is up."""

    state: Path
    variables: dict[str, str]
    subnets: tuple[str, ...]
    security_group: str

    def call(self, service: str, operation: str, **arguments: Any) -> Any:
        """Ask AWS, leaving no connection behind."""
        import boto3

        session = boto3.session.Session("test", "test", region_name=REGION)
        with contextlib.closing(session.client(service, endpoint_url=self.variables["AWS_ENDPOINT_URL"])) as client:
            return getattr(client, operation)(**arguments)

    def specs(self, image: str) -> dict[str, Any]:
        """Give what a specs file holds for workers of an image."""
        both = {
            "instance_type": "c5.large",
            "accelerator": "none",
            "instance_role": "lattice-instance",
            "subnets": list(self.subnets),
            "security_groups": [self.security_group],
        }
        of_workers = {"docker_image": f"local/{image}", "s3_bucket": self.bucket, "efs_file_system_id": EFS}
        return {"rdzv": both, "worker": {**both, **of_workers}}

    def instances(self, group: str) -> list[str]:
        """List the instances of a group."""
        named = {"AutoScalingGroupNames": [group]}
        groups = self.call("autoscaling", "describe_auto_scaling_groups", **named)["AutoScalingGroups"]
        return [one["InstanceId"] for found in groups for one in found["Instances"]]

    @property
    def bucket(self) -> str:
        """The bucket for jobs."""
        return BUCKET

    @property
    def efs(self) -> Path:
        """The folder that all instances see as theirs of EFS."""
        return self.state / "efs" / EFS

    def launched(self, instance: str) -> datetime:
        """Tell when an instance was made."""
        found = self.call("ec2", "describe_instances", InstanceIds=[instance])["Reservations"][0]["Instances"][0]
        at: datetime = found["LaunchTime"]
        return at

    def folder(self, instance: str) -> Path:
        """Give the folder of an instance's host: its logs, its engine's socket."""
        return self.state / "hosts" / instance

    def docker(self, instance: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the docker command on an instance."""
        argv = ["docker", "-H", f"unix://{self.folder(instance)}/docker.sock", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, timeout=patience(60), check=False)

    def host_name(self, instance: str) -> str:
        """Give the name that an instance's host has for itself."""
        return (self.folder(instance) / "name").read_text()

    def give_notice(self, instance: str) -> None:
        """Tell an instance, through its metadata service, that it will be taken away."""
        soon = (datetime.now(UTC) + timedelta(minutes=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
        (self.folder(instance) / NOTICE).write_text(json.dumps({"action": "terminate", "time": soon}))

    def cut(self, instance: str) -> None:
        """Cut the power of an instance's host, and AWS does not notice."""
        (self.folder(instance) / CUT).touch()

    def bring_forward(self, *groups: str) -> None:
        """Let the time of the scheduled actions of groups come."""
        for action in self.call("autoscaling", "describe_scheduled_actions")["ScheduledUpdateGroupActions"]:
            if action["AutoScalingGroupName"] in groups:
                kept = ("AutoScalingGroupName", "ScheduledActionName", "MinSize", "MaxSize", "DesiredCapacity")
                changed = {**{name: action[name] for name in kept}, "StartTime": datetime.now(UTC)}
                self.call("autoscaling", "put_scheduled_update_group_action", **changed)

    def clear(self) -> None:
        """Empty EFS and the bucket, and forget the instances that were."""
        for folder in (self.efs, self.state / "hosts"):
            shutil.rmtree(folder, ignore_errors=True)
        for found in self.call("s3", "list_objects_v2", Bucket=self.bucket).get("Contents", ()):
            self.call("s3", "delete_object", Bucket=self.bucket, Key=found["Key"])

    def told(self) -> str:
        """Give what the hosts said, for a test that failed."""
        files = [file for name in HOST_LOGS for file in (self.state / "hosts").glob(f"*/{name}")]
        return "\n".join(f"--- {file}\n{file.read_text(errors='replace')[-3000:]}" for file in sorted(files))


@contextlib.contextmanager
def cloud() -> Iterator[Cloud]:
    """Have a cloud for the length of a block; all of it goes at once."""
    require("apt-get", "unshare")
    pytest.importorskip("moto", reason="the lab's cloud needs moto")
    if not Path("/sys/fs/cgroup/freezer").is_dir():
        pytest.skip("the lab's cloud needs cgroup v1")
    name = f"t{os.getpid()}c"
    variables = {"LAB_NAME": name}
    call("docker/provision.sh", variables=variables, within=600)
    image = call("python_rootfs.sh", "cloud", sys.executable, "boto3", variables=variables, within=600).strip()
    state = Path(image).parents[1] / "run" / name
    _lay_out(state, image)
    with contextlib.ExitStack() as stack:
        stack.callback(call, "cloud/down.sh", str(state), variables=variables)
        outside = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        log = stack.enter_context((state / "cloud.log").open("wb"))
        words = [sys.executable, "-m", "tests.lab.cloud.service", str(state), str(outside.fileno()), REGION]
        process = subprocess.Popen(
            [str(HERE / "cloud/up.sh"), str(state), *words],
            env={**os.environ, **variables},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            pass_fds=[outside.fileno()],
        )
        stack.callback(_end, process)

        eventually(lambda: (state / "up").exists() or process.poll() is not None, within=180)
        assert process.poll() is None, (state / "cloud.log").read_text()[-4000:]
        yield _furnish(state, f"http://127.0.0.1:{outside.getsockname()[1]}")


def _lay_out(state: Path, image: str) -> None:
    shutil.rmtree(state, ignore_errors=True)
    for name, last in DOCKERFILES.items():
        (state / "build" / name).mkdir(parents=True)
        (state / "build" / name / "Dockerfile").write_text(FIRST_LINES + last)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "lattice", state / "context" / "lattice", ignore=ignored)
    (state / "image.tar").symlink_to(image)


def _furnish(state: Path, url: str) -> Cloud:
    variables = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    made = Cloud(state, variables, (), "")
    network = made.call("ec2", "create_vpc", CidrBlock="10.77.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        made.call("ec2", "create_subnet", VpcId=network, CidrBlock=block, AvailabilityZone=f"{REGION}{zone}")
        for block, zone in (("10.77.1.0/24", "a"), ("10.77.2.0/24", "b"))
    ]
    group = made.call("ec2", "create_security_group", GroupName="lattice", Description="lattice", VpcId=network)
    made.call("s3", "create_bucket", Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    return Cloud(state, variables, tuple(one["Subnet"]["SubnetId"] for one in subnets), group["GroupId"])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.communicate()
