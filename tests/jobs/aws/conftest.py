"""AWS as moto has it: a server of our own, and the command line with credentials that mean nothing elsewhere."""

from __future__ import annotations

import functools
import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.aws.commands import Commands, commands
from tests.jobs.places import Said
from tests.leaks import no_leaks
from tests.moto_server import moto_server
from tests.waiting import patience

__all__ = ["no_leaks"]

REGION = "eu-central-1"
BUCKET = "of-the-tests"


@dataclass(eq=False)
class Cloud:
    """An AWS account, empty but for a bucket and a subnet."""

    url: str
    variables: dict[str, str]
    commands: Commands
    folder: Path = Path()
    """for the test's own files"""
    specs: dict[str, Any] = field(default_factory=dict)
    answers: list[dict[str, object]] = field(default_factory=list)
    """given in place of AWS's own, see :mod:`tests.jobs.aws.warm`"""

    @functools.cache  # noqa: B019 - there is one account in a process
    def client(self, service: str) -> Any:
        """Give boto3's client of a service; to make one takes longer than to use it."""
        import boto3

        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=self.variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.variables["AWS_SECRET_ACCESS_KEY"],
        )

    def run(self, *words: str, die: int = -1, **variables: str) -> Said:
        """
        Run a command of ours to its end.

        :param die: after how many calls that change something it kills itself, see :mod:`tests.jobs.aws.warm`
        """
        return self.commands.run(words, {**self.environ(), **variables}, self.folder, die, self.answers)

    @property
    def calls(self) -> list[str]:
        """To AWS that the last command made."""
        return self.commands.calls

    def environ(self) -> dict[str, str]:
        """Give the environment of a command."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return {**kept, **self.variables, "LATTICE_HOME": str(self.folder / "home")}

    def submit(self, name: str, *words: str, size: str = "2", die: int = -1, **variables: str) -> Said:
        """Submit a job of a script."""
        (self.folder / "specs.json").write_text(json.dumps(self.specs))
        script = self.folder / "train.py"
        if not script.exists():
            script.write_text("print('hello')\n")
        given = words or ("train.py", "--", "--lr", "0.1")
        options = ["--name", name, "--on", "aws", "--specs_file", "specs.json", *(["--size", size] if size else [])]
        return self.run("submit", *options, *given, die=die, **variables)

    def status(self, name: str) -> dict[str, Any]:
        """Ask how a job stands."""
        said = self.run("status", "--json", name)
        assert said.code == 0, said.err
        found: dict[str, Any] = json.loads(said.out)
        return found

    def resources(self) -> dict[str, list[str]]:
        """List all that there is, by kind; what ends with its job is what must be empty afterwards."""
        groups = self.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
        actions = self.client("autoscaling").describe_scheduled_actions()["ScheduledUpdateGroupActions"]
        templates = self.client("ec2").describe_launch_templates()["LaunchTemplates"]
        reservations = self.client("ec2").describe_instances()["Reservations"]
        parameters = self.client("ssm").get_parameters_by_path(Path="/lattice/", Recursive=True)["Parameters"]
        s3 = self.client("s3")
        named = sorted(group["AutoScalingGroupName"] for group in groups)
        return {
            "groups": named,
            # Those of a group go with it, but not in moto.
            "leases": sorted(one["AutoScalingGroupName"] for one in actions if one["AutoScalingGroupName"] in named),
            "templates": sorted(template["LaunchTemplateName"] for template in templates),
            "instances": sorted(
                f"{one['InstanceId']}"
                for reservation in reservations
                for one in reservation["Instances"]
                if one["State"]["Name"] not in ("terminated", "shutting-down")
            ),
            "secrets": sorted(one["Name"] for one in parameters if not one["Name"].startswith("/aws/")),
            "logs": sorted(one["logGroupName"] for one in self.client("logs").describe_log_groups()["logGroups"]),
            "objects": sorted(one["Key"] for one in s3.list_objects_v2(Bucket=BUCKET).get("Contents", ())),
            "uploads": sorted(one["Key"] for one in s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())),
        }

    def reset(self, folder: Path) -> None:
        """Begin anew with an empty account."""
        urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/moto-api/reset", method="POST"), timeout=patience(30)
        ).close()
        self.folder, self.answers = folder, []
        self.furnish()

    def furnish(self) -> None:
        """Make what a user has before a first job."""
        self.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
        ec2 = self.client("ec2")
        subnets = [one["SubnetId"] for one in ec2.describe_subnets()["Subnets"]][:2]
        group = ec2.describe_security_groups()["SecurityGroups"][0]["GroupId"]
        both = {
            "instance_type": "m5.large",
            "accelerator": "none",
            "instance_role": "lattice",
            "subnets": subnets,
            "security_groups": [group],
        }
        of_workers = {"docker_image": "lattice-agent", "s3_bucket": BUCKET, "s3_prefix": "jobs"}
        self.specs = {"region": REGION, "rdzv": dict(both), "worker": {**both, **of_workers}}


@contextmanager
def moto(folder: Path) -> Iterator[Cloud]:
    """Run moto's server, and what runs our commands, as our children."""
    with moto_server(folder) as server, commands() as warm:
        yield Cloud(server.url, server.variables, warm)


@pytest.fixture(scope="session")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """AWS, for all tests of a process."""
    with moto(tmp_path_factory.mktemp("moto")) as made:
        yield made


@pytest.fixture
def cloud(account: Cloud, tmp_path: Path) -> Cloud:
    """An empty account."""
    account.reset(tmp_path)
    return account
