"""AWS whose instances run: the lab's cloud as a place for jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.aws.commands import Commands, commands
from tests.jobs.places import Place, Said
from tests.lab.cloud import PLAIN, Cloud, cloud
from tests.waiting import eventually

START_TIMEOUT = 150.0
"""seconds that instances have to boot, and their agents to meet, on a busy machine"""


@dataclass
class AwsPlace(Place):
    """An AWS account in which only the jobs of one test are."""

    cloud: Cloud = field(kw_only=True)
    commands: Commands = field(kw_only=True)

    def run(self, *words: str) -> Said:
        """Run a command to its end."""
        return self.commands.run(words, self.environ(), self.folder)

    def running(self) -> list[str]:
        """List the instances."""
        reservations = self.cloud.call("ec2", "describe_instances")["Reservations"]
        found = [one for reservation in reservations for one in reservation["Instances"]]
        return [one["InstanceId"] for one in found if one["State"]["Name"] in ("pending", "running")]

    def kill_agent(self, node: dict[str, Any]) -> None:
        """Kill the agent of a node."""
        killed = self.cloud.docker(node["host"], "kill", "--signal", "KILL", "lattice-worker")
        assert killed.returncode == 0, killed.stderr

    def use(self, image: str) -> None:
        """Have the jobs run in another image."""
        (self.folder / "specs.json").write_text(json.dumps(self.cloud.specs(image)))


@pytest.fixture(scope="module")
def running_cloud() -> Iterator[Cloud]:
    """A cloud that many tests share, one after another."""
    with cloud() as up:
        yield up


@pytest.fixture(scope="module")
def warm() -> Iterator[Commands]:
    """What runs commands without loading boto3 each time: it takes longer than the rest of them."""
    with commands() as up:
        yield up


@pytest.fixture
def place(running_cloud: Cloud, warm: Commands, tmp_path: Path) -> Iterator[AwsPlace]:
    """The cloud, empty; it is empty again at the end, and what its instances said is shown if the test failed."""

    def options(size: int) -> list[str]:
        sized = ["--size", str(size)] if size else []
        return [*sized, "--specs_file", str(tmp_path / "specs.json")]

    made = AwsPlace("aws", tmp_path, tmp_path / "home", options, cloud=running_cloud, commands=warm)
    made.variables, made.queues = running_cloud.variables, True
    made.use(PLAIN)
    yield made
    print(running_cloud.told())
    for name in made.submitted:
        said = made.run("kill", "--grace", "0", name)
        print(said.out, said.err)
    eventually(lambda: not made.running(), within=60)
    running_cloud.clear()
