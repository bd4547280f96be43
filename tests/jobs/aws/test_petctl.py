"""petctl: torchelastic's words, our jobs. What it makes of them, and one job against AWS as moto has it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lattice import petctl
from lattice.core.spec import NodeRange
from lattice.jobs.aws import plan, specs
from lattice.jobs.aws.sections import sections
from lattice.jobs.job import Code, Job
from lattice.petctl import main
from tests.agents import ROOT
from tests.jobs.aws.conftest import BUCKET, REGION, Cloud
from tests.jobs.aws.price_list import price_list
from tests.jobs.aws.test_specs import given
from tests.waiting import patience

Said = Callable[..., Job]


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATTICE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    Path("specs.json").write_text(json.dumps(given()))
    Path("train.py").write_text("")
    Path("project").mkdir()
    Path("project/train.py").write_text("")


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Said:
    """Give the job that petctl would submit for these words."""
    submitted: list[Job] = []

    def accept(job: Job) -> int:
        submitted.append(job)
        return 0

    monkeypatch.setattr(petctl, "print_quote", lambda job: True)
    monkeypatch.setattr(petctl, "submit", accept)

    def said(*words: str, specs: tuple[str, ...] = ("--specs_file", "specs.json")) -> Job:
        assert main(["run_job", "--size", "2", "--name", "me-job", *specs, *words]) == 0
        return submitted[-1]

    return said


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    said = capsys.readouterr()
    assert not said.out
    return said.err


ARGUMENTS = ("--model_arch", "resnet101", "-x", "--", "a b")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("train.py",), Code("train.py")),
        (("project", "train.py"), Code("project", "train.py")),
        (("s3://b/train.py",), Code("s3://b/train.py")),
        (("s3://b/project.tar.gz", "train.py"), Code("s3://b/project.tar.gz", "train.py")),
        (("--no_upload", "/code", "train.py"), Code("/code", "train.py", upload=False)),
        (("--no_upload", "/code/train.py"), Code("/code/train.py", upload=False)),
        (("train.py", "--no_upload"), Code("train.py", upload=False)),
    ],
)
def test_every_form_of_a_script_with_its_arguments(job: Said, words: tuple[str, ...], code: Code) -> None:
    found = job(*words, "--", *ARGUMENTS)
    assert (found.code, found.arguments) == (code, ARGUMENTS)
    assert (found.name, found.place, found.size) == ("me-job", "aws", NodeRange(2, 2))
    without = job(*words)
    assert (without.code, without.arguments) == (code, ())


def test_a_job_is_what_torchelastic_would_have_run(job: Said) -> None:
    assert dict(job("train.py").run_options) == {"framework": "pytorch", "max_restarts": "3"}
    Path("specs.json").write_text(json.dumps(given(instance_type="p3.2xlarge", accelerator="gpu")))
    assert dict(job("train.py").run_options)["nproc_per_node"] == "gpu"
    more = dict(job("train.py", "--nproc_per_node", "4", "--max_restarts=0").run_options)
    assert more == {"framework": "pytorch", "max_restarts": "0", "nproc_per_node": "4"}


def begins_with(found: Job) -> int:
    (section,) = sections(found, specs.parse(given()))
    return section.begins


def test_sizes_are_those_of_the_group(job: Said) -> None:
    some = job("--min_size", "1", "--max_size", "4", "train.py")
    assert (some.size, begins_with(some)) == (NodeRange(1, 4), 2)
    assert begins_with(job("train.py")) == 2


def test_another_type_and_region_than_the_file_has(job: Said) -> None:
    found = job("--instance_type", "m5.large", "--region", "eu-west-1", "train.py")
    assert dict(found.place_options) == {
        "specs_file": "specs.json",
        "instance_type": "m5.large",
        "region": "eu-west-1",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no script"),
        (("--", "a"), "no script"),
        (("train.py", "a"), "'train.py' is no folder: arguments of the script go after --"),
        (("train.py", "a", "--", "b"), "'train.py' is no folder: arguments of the script go after --"),
        (("train.py", "a", "b"), "arguments of the script go after --: train.py -- a b"),
        (("train.py", "a", "b", "--", "c"), "more than a folder and a script before --"),
        (("nothing.py",), "there is no 'nothing.py' here"),
        (("project",), "name the script in it"),
        (("train.py", "--min_size", "3"), "--min_size 3, --size 2, --max_size 2"),
        (("train.py", "--max_size", "1"), "--size 2, --max_size 1"),
        (("train.py", "--size", "two"), "--size is 'two'"),
        (("train.py", "--name", "My_Job"), "--name is 'My_Job'"),
        (("train.py", "--colour", "red"), "unknown option --colour"),
        (("train.py", "--specs_file", "none.json"), "No such file or directory"),
        (("train.py", "--instance_type", "huge"), "worker.instance_type"),
        (("train.py", "--region", "here"), "region"),
        (("train.py", "--rdzv_backend", "etcd"), "unknown option --rdzv_backend"),
    ],
)
def test_a_wrong_run_is_refused(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    known = ("--size", "2", "--name", "me-job", "--specs_file", "specs.json")
    assert said in refused(capsys, "run_job", *known, *words)
    assert not Path("home").exists(), "nothing is left behind"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "x"), "unknown command 'run'; there are run_job, kill_job"),
        (("run_job", "--name", "a", "train.py"), "--size is missing"),
        (("run_job", "--size", "2", "--specs_file", "specs.json", "train.py"), "--name is missing"),
        (("run_job", "--size", "2", "--name", "a", "train.py"), "petctl configure --specs_file FILE"),
        (("kill_job",), "the name of one job"),
        (("kill_job", "a", "--name", "b"), "the name of one job"),
        (("kill_job", "a"), "there is no job 'a'"),
        (("kill_job", "--name", "a"), "there is no job 'a'"),
        (("list_hosts",), "the name of one job"),
        (("list_hosts", "a"), "there is no job 'a'"),
        (("upload",), "a script or folder"),
        (("upload", "nothing.py"), "there is no 'nothing.py'"),
        (("upload", "train.py"), "where to?"),
        (("upload", "train.py", "bucket/a"), "no place in S3"),
        (("configure",), "--specs_file FILE"),
        (("configure", "--specs_file", "none.json"), "No such file or directory"),
        (("setup", "now"), "no argument 'now'"),
        (("setup", "--specs_file", "specs.json"), "is there already"),
    ],
)
def test_a_wrong_command_is_refused(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str) -> None:
    assert said in refused(capsys, *words)


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: petctl COMMAND" in capsys.readouterr().err
    for words in (["--help"], ["help"], *([name, "--help"] for name in petctl.COMMANDS)):
        assert main(words) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"usage: petctl {words[0] if len(words) > 1 else 'COMMAND'}")
        assert max(len(line) for line in said.splitlines()) < 80
    assert main(["help", "run_job"]) == 0
    assert "--min_size N" in capsys.readouterr().out


def test_what_was_configured_is_used_and_what_is_said_wins(job: Said, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["configure", "--specs_file", "specs.json", "--region", "eu-west-1"]) == 0
    found = job("train.py", specs=())
    assert dict(found.place_options) == {"specs_file": str(Path("specs.json").absolute()), "region": "eu-west-1"}
    Path("other.json").write_text(json.dumps(given()))
    assert job("--specs_file", "other.json", "train.py", specs=()).place_options["specs_file"] == "other.json"
    Path("home/petctl.json").write_text("{")
    assert "petctl configure" in refused(capsys, "upload", "train.py", "s3://b/a")


def call(cloud: Cloud, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "lattice.petctl", *words],
        env={**cloud.environ(), **variables},
        cwd=cloud.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience(180),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_tutorial_from_the_first_command_to_the_last(cloud: Cloud) -> None:
    script = str(ROOT / "examples" / "imagenet" / "main.py")
    before = cloud.resources()
    call(cloud, "setup", "--region", REGION, "--s3_bucket", BUCKET, "--docker_image", "me/train:1")
    with price_list({"c5.large": 0.085, "p3.2xlarge": 3.06}) as prices:
        run = ["run_job", "--size", "2", "--max_size", "3", "--name", "me-job", script]
        started = call(cloud, *run, "--", "--model_arch", "resnet101", AWS_ENDPOINT_URL_PRICING=prices.url)
    assert "1 x c5.large in eu-central-1 (etcd): $0.085 an hour each" in started.stderr
    assert "2 x p3.2xlarge in eu-central-1 (workers): $3.06 an hour each" in started.stderr
    assert "in all: $6.21 an hour" in started.stderr and "up to 3 workers" in started.stderr
    assert [(asked["instanceType"], asked["regionCode"]) for asked in prices.asked[:2]] == [
        ("c5.large", REGION),
        ("p3.2xlarge", REGION),
    ]

    (group,) = (one for one in groups(cloud) if one["AutoScalingGroupName"] == "me-job_worker")
    assert (group["DesiredCapacity"], group["MaxSize"]) == (2, 3)
    order = told(cloud)
    assert order["arguments"] == ["--model_arch", "resnet101"]
    assert order["code"]["script"] == "main.py"
    assert order["run_options"] == {"framework": "pytorch", "max_restarts": "3", "nproc_per_node": "gpu"}
    hosts = call(cloud, "list_hosts", "me-job").stdout
    assert all(one["InstanceId"] in hosts for one in group["Instances"])
    listed = json.loads(call(cloud, "list_hosts", "me-job", "--json").stdout)
    assert {one["host"] for one in listed} == {one["InstanceId"] for one in group["Instances"]}
    status = subprocess.run(
        [sys.executable, "-m", "lattice", "status", "--json", "me-job"],
        env=cloud.environ(),
        capture_output=True,
        text=True,
        timeout=patience(180),
        check=True,
    )
    spent = sum(node["cost"] for node in json.loads(status.stdout)["nodes"])
    assert 0 < spent < 6.205, "less than an hour of two workers and etcd"

    call(cloud, "kill_job", "--name", "me-job")
    kept = ("objects", "logs")
    left = cloud.resources()
    assert {kind: left[kind] for kind in left if kind not in kept} == {
        kind: before[kind] for kind in before if kind not in kept
    }


def groups(cloud: Cloud) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cloud.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    return found


def told(cloud: Cloud) -> dict[str, Any]:
    """Give what the nodes of the only job are told."""
    s3 = cloud.client("s3")
    (key,) = (key for key in cloud.resources()["objects"] if key.endswith(plan.ORDER))
    found: dict[str, Any] = json.loads(s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())
    return found


def test_a_set_up_is_found_again_and_its_bucket_and_file_system_are_new(cloud: Cloud) -> None:
    call(cloud, "setup", "--region", REGION)
    first = json.loads((cloud.folder / "home" / "specs.json").read_text())
    assert first["worker"]["docker_image"] == "<YOUR DOCKER IMAGE>"
    buckets = [one["Name"] for one in cloud.client("s3").list_buckets()["Buckets"]]
    assert first["worker"]["s3_bucket"] in buckets and first["worker"]["s3_bucket"] != BUCKET
    again = call(cloud, "setup", "--region", REGION, "--specs_file", "again.json", "--docker_image", "me/train:1")
    assert "is there already" in again.stderr
    second = json.loads((cloud.folder / "again.json").read_text())
    assert second["worker"] == {**first["worker"], "docker_image": "me/train:1"}
    policy = cloud.client("iam").list_roles()["Roles"]
    (role,) = (one["RoleName"] for one in policy if one["RoleName"].startswith("lattice"))
    allowed = cloud.client("iam").get_role_policy(RoleName=role, PolicyName="lattice-instance")["PolicyDocument"]
    assert f"arn:aws:s3:::{first['worker']['s3_bucket']}/*" in json.dumps(allowed)


def test_a_script_is_put_as_it_is_and_a_folder_as_an_archive(cloud: Cloud) -> None:
    (cloud.folder / "specs.json").write_text(json.dumps(cloud.specs))
    own = call(cloud, "upload", "--specs_file", "specs.json", "train.py").stdout
    assert own.startswith(f"s3://{BUCKET}/jobs/") and own.endswith("/scripts/train.py\n")
    given = call(cloud, "upload", "--region", REGION, "project", f"s3://{BUCKET}/a/b/").stdout
    assert given == f"s3://{BUCKET}/a/b/project.tar.gz\n"
    assert {"a/b/project.tar.gz"} < set(cloud.resources()["objects"])
