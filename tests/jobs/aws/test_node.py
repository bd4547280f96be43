"""What runs on an instance, against moto and a metadata service of the test; on real hosts in test_end_to_end."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lattice.jobs.aws import instance, node
from lattice.jobs.aws.client import Client
from lattice.jobs.aws.plan import Call
from tests.jobs.aws.conftest import BUCKET, Cloud
from tests.jobs.aws.test_views import ENDED, ROUND, journal
from tests.waiting import eventually, patience

PROGRAM = """\
import signal, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
def end(*_):
    with open(folder / "journal.jsonl", "a") as file:
        file.write('{"event": "left", "status": 143, "time": "2026-01-01T00:00:05+00:00"}\\n')
    sys.exit(143)
signal.signal(signal.SIGTERM, end)
(folder / "ready").touch()
time.sleep(1000)
"""


class Machine:
    """One instance of a job: its folder, and its metadata service."""

    def __init__(self, cloud: Cloud, folder: Path, name: str, facts: dict[str, Any]) -> None:
        self.cloud, self.folder, self.name = cloud, folder, name
        self.said = {"instance-id": name, "local-ipv4": "127.0.0.1"}
        folder.mkdir()
        self.facts = folder / "job.json"
        self.facts.write_text(json.dumps(facts))
        said = self.said

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                self._answer("token")

            def do_GET(self) -> None:
                known = self.headers.get("X-aws-ec2-metadata-token") == "token"
                self._answer(said.get(self.path.removeprefix("/latest/meta-data/")) if known else None)

            def _answer(self, text: str | None) -> None:
                self.send_response(200 if text else 404)
                self.end_headers()
                self.wfile.write((text or "").encode())

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.variables = {
            **cloud.variables,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://127.0.0.1:{self._server.server_port}",
        }

    def write_journal(self, *lines: dict[str, Any]) -> None:
        (self.folder / "journal.jsonl").write_bytes(journal(1, *lines))

    def kept(self, name: str) -> bytes:
        """Read what is in the job's folder in S3."""
        folder = json.loads(self.facts.read_text())["folder"]
        s3 = self.cloud.client("s3")
        keys = [one["Key"] for one in s3.list_objects_v2(Bucket=BUCKET, Prefix=f"{folder}/{name}").get("Contents", ())]
        return bytes(s3.get_object(Bucket=BUCKET, Key=keys[0])["Body"].read()) if keys else b""

    @contextlib.contextmanager
    def attended(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run something that stands for the worker, and what looks after it; gives the latter."""
        worker = subprocess.Popen([sys.executable, "-c", PROGRAM, str(self.folder)])
        command = [sys.executable, "-m", "lattice.jobs.aws.instance", "attend", str(self.facts), str(worker.pid)]
        attending = subprocess.Popen(command, env={**self.cloud.environ(), **self.variables})
        try:
            eventually((self.folder / "ready").exists, within=60)
            yield attending
            assert attending.wait(patience(120)) == 0
            assert worker.wait(patience(10)) == 143
        finally:
            for child in (worker, attending):
                child.kill()
                child.wait()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def facts_of(cloud: Cloud, group: str, index: int) -> tuple[str, dict[str, Any]]:
    """Name one of a group's instances, and give what its user data tells it."""
    found = cloud.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[group])
    names = sorted(one["InstanceId"] for one in found["AutoScalingGroups"][0]["Instances"])
    asked = cloud.client("ec2").describe_instance_attribute(InstanceId=names[index], Attribute="userData")
    text = base64.b64decode(asked["UserData"]["Value"]).decode()
    facts = re.search(r"<<'END'\n(.*?)\nEND\n", text, re.DOTALL)
    assert facts
    return names[index], json.loads(facts[1])


Machines = Callable[[int], Machine]


@pytest.fixture
def machine(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    """Submit a job, and give one of its instances."""
    arguments = ["two words", "", 'it\'s $HOME\n"quoted" *', "ünï", "--", "-x"]
    (tmp_path / "job.yaml").write_text(
        "script: train.py\nenv:\n  LINES: \"one\\ntwo\"\n  COLOUR: 'a=b, c'\n" + f"args: {json.dumps(arguments)}\n"
    )
    (tmp_path / "train.py").write_text("print('hello')\n")
    assert cloud.submit("me-job", "--file", "job.yaml").code == 0
    monkeypatch.setattr(instance, "FAREWELL", 0.0)
    monkeypatch.setattr(node, "INSISTENCE", 0.0)
    made: list[Machine] = []

    def make(index: int) -> Machine:
        name, facts = facts_of(cloud, "me-job_worker", index)
        made.append(Machine(cloud, tmp_path / name, name, facts))
        for name, value in made[-1].variables.items():
            monkeypatch.setenv(name, value)
        return made[-1]

    yield make
    for one in made:
        one.close()


def sizes(cloud: Cloud) -> dict[str, int]:
    groups = cloud.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    return {group["AutoScalingGroupName"]: group["DesiredCapacity"] for group in groups}


def test_a_node_is_prepared_with_its_code_secrets_and_exact_words(machine: Machines) -> None:
    one = machine(0)
    assert instance.main(["prepare", str(one.facts)]) == 0
    assert re.fullmatch(r"[\d.]+:2379", (one.folder / "endpoints").read_text())
    assert (one.folder / "password").stat().st_mode & 0o777 == 0o600
    assert (one.folder / "code" / "train.py").read_text() == "print('hello')\n"
    words = (one.folder / "words").read_bytes().decode().split("\0")
    at = words.index("lattice-agent")
    assert words[at + 1 :] == [
        str(one.folder / "code" / "train.py"),
        *("two words", "", 'it\'s $HOME\n"quoted" *', "ünï", "--", "-x", ""),
    ]
    variables = dict(words[i + 1].split("=", 1) for i, word in enumerate(words[:at]) if word == "--env")
    assert (variables["LINES"], variables["COLOUR"]) == ("one\ntwo", "a=b, c")
    conf = variables["LATTICE_RDZV_CONF"].split(",")
    assert "store_grace=900" in conf, "an instance takes minutes to be replaced"
    assert {"server_name=lattice-rdzv", "user=root"} < set(conf)
    assert (one.folder / "password").read_text() not in "\0".join(words)
    assert f"awslogs-stream={variables['LATTICE_RDZV_ID']}/{one.name}" in words


def test_code_that_is_not_what_was_submitted_is_not_run_and_said(machine: Machines, cloud: Cloud) -> None:
    one = machine(0)
    key = next(key for key in cloud.resources()["objects"] if key.endswith(".tar.gz"))
    cloud.client("s3").put_object(Bucket=BUCKET, Key=key, Body=b"something else")
    assert instance.main(["prepare", str(one.facts)]) == instance.FINAL
    assert not (one.folder / "words").exists()
    (node_of,) = (found for found in cloud.status("me-job")["nodes"] if found["host"] == one.name)
    assert "is not what was submitted" in node_of["report"]


def test_a_running_node_tells_how_it_stands_keeps_the_lease_and_finds_etcd(machine: Machines, cloud: Cloud) -> None:
    one = machine(0)
    one.write_journal(ROUND, {"event": "workers started", "ranks": [0, 0]})
    (one.folder / "endpoints").write_text("127.0.0.1:1")
    autoscaling = cloud.client("autoscaling")

    def leases() -> list[datetime]:
        actions = autoscaling.describe_scheduled_actions()["ScheduledUpdateGroupActions"]
        return [action["StartTime"] for action in actions]

    before = leases()
    with one.attended():
        eventually(lambda: one.kept("nodes/"), within=60)
        found = cloud.status("me-job")
        assert (found["state"], found["workers"]) == ("running", 2)
        eventually(lambda: min(leases()) > max(before), within=60)
        eventually(lambda: (one.folder / "endpoints").read_text() != "127.0.0.1:1", within=60)
        killed = cloud.run("kill", "me-job")
        assert killed.code == 0, killed.err
    assert b'"left"' in one.kept("nodes/")
    found = cloud.status("me-job")
    assert (found["state"], found["nodes"][0]["state"]) == ("killed", "ended")


def test_s3_that_fails_for_a_while_ends_nothing(machine: Machines, cloud: Cloud) -> None:
    one = machine(0)
    one.write_journal(ROUND)
    s3 = cloud.client("s3")
    kept = {key: s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in cloud.resources()["objects"]}
    for key in kept:
        s3.delete_object(Bucket=BUCKET, Key=key)
    s3.delete_bucket(Bucket=BUCKET)
    with one.attended() as attending:
        with contextlib.suppress(subprocess.TimeoutExpired):
            attending.wait(8)
        assert attending.poll() is None
        s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        eventually(lambda: one.kept("nodes/"), within=60)
        one.said["spot/instance-action"] = '{"action": "terminate"}'  # AWS wants it back: the worker is told
    assert b'"left"' in one.kept("nodes/")
    assert instance.main(["leave", str(one.facts), "143"]) == 0
    assert sizes(cloud) == {"me-job_rdzv": 1, "me-job_worker": 2}, "the group replaces what AWS takes"


@pytest.mark.parametrize(("status", "state"), [(0, "succeeded"), (7, "failed")])
def test_the_end_of_the_run_is_told_and_ends_all_instances(
    machine: Machines, cloud: Cloud, status: int, state: str
) -> None:
    one = machine(0)
    one.write_journal(ROUND, {**ENDED, "status": status, "reason": "run failed\n  rank 1 on b: exit code 7"})
    assert instance.main(["leave", str(one.facts), str(status)]) == 0
    assert sizes(cloud) == {"me-job_rdzv": 0, "me-job_worker": 0}
    assert json.loads(one.kept("outcome")) == {"status": status}
    assert cloud.run("wait", "me-job").code == status
    left = cloud.resources()
    assert not any(left[kind] for kind in ("groups", "templates", "secrets", "instances")), "whoever looks, tidies up"
    assert cloud.status("me-job")["state"] == state
    late = one.folder.with_name("late")
    late.mkdir()
    (late / "job.json").write_text(one.facts.read_text())
    assert instance.main(["prepare", str(late / "job.json")]) == 0
    assert (late / "over").exists() and not (late / "words").exists(), "nobody begins it anew"


class Gone(BaseException):
    """The instance has ended, and all that ran there."""


@pytest.fixture
def quick_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS ends an instance as soon as it is asked to."""
    call = Client.call

    def ending(self: Client, asked: Call) -> dict[str, Any]:
        answer = call(self, asked)
        if asked.operation.startswith("terminate") or asked.arguments.get("AutoScalingGroupName") == "me-job_worker":
            raise Gone
        return answer

    monkeypatch.setattr(Client, "call", ending)


@pytest.mark.parametrize("lines", [(ROUND, ENDED), ()], ids=["the run has ended", "the last node fails"])
def test_etcd_is_ended_too_by_an_instance_that_does_not_outlive_its_own_end(
    lines: tuple[dict[str, Any], ...], machine: Machines, cloud: Cloud, quick_end: None
) -> None:
    cloud.client("autoscaling").set_desired_capacity(AutoScalingGroupName="me-job_worker", DesiredCapacity=1)
    one = machine(0)
    if lines:
        one.write_journal(*lines)
    with pytest.raises(Gone):
        instance.main(["leave", str(one.facts), "0"])
    assert sizes(cloud) == {"me-job_rdzv": 0, "me-job_worker": 0}


def test_nodes_that_fail_by_themselves_are_taken_out_and_not_replaced(machine: Machines, cloud: Cloud) -> None:
    for index, expected in ((0, {"me-job_rdzv": 1, "me-job_worker": 1}), (0, {"me-job_rdzv": 0, "me-job_worker": 0})):
        one = machine(index)
        (one.folder / "last_words").write_text("lattice: there is no 'train.py' here\n")
        assert instance.main(["leave", str(one.facts), "2"]) == 0
        assert sizes(cloud) == expected
    assert not cloud.resources()["instances"]
    found = cloud.status("me-job")
    assert (found["state"], found["exit_code"]) == ("failed", 2)
    assert "there is no 'train.py' here" in cloud.run("status", "me-job").out
    assert cloud.run("kill", "me-job").code == 0
