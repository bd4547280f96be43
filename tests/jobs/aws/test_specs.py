"""The specs file: every field, and everything that can be wrong with it, told at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from lattice.errors import UsageError
from lattice.jobs.aws import specs
from lattice.jobs.aws.specs import COMMON, OF_WORKERS, InstanceSpec, WorkerSpec, architecture, parse, read
from tests.agents import ROOT

SAMPLE = ROOT / "aws" / "config" / "sample_specs.json"
RDZV = {
    "instance_type": "c5.large",
    "accelerator": "none",
    "instance_role": "node",
    "subnets": ["subnet-1a", "subnet-2b"],
    "security_groups": ["sg-1a"],
}
WORKER = {**RDZV, "docker_image": "me/train:1", "s3_bucket": "my-bucket"}


def given(section: str = "worker", **changes: Any) -> dict[str, Any]:
    """Give a content with some fields changed; an ellipsis for one that is left out."""
    made: dict[str, dict[str, Any]] = {"rdzv": dict(RDZV), "worker": dict(WORKER)}
    made[section].update(changes)
    made[section] = {name: value for name, value in made[section].items() if value is not ...}
    return made


def refused(content: Any) -> str:
    with pytest.raises(UsageError) as caught:
        parse(content, "my.json")
    return str(caught.value)


def test_every_field_has_its_meaning() -> None:
    more = {"ebs_volume_gb": 200, "max_spot_price": 0.5, "key_pair": "my key"}
    of_workers = {"s3_prefix": "jobs/me", "efs_file_system_id": "fs-1a"}
    found = parse({"rdzv": {**RDZV, **more}, "worker": {**WORKER, **more, **of_workers}, "region": "eu-west-1"})
    common = ("none", "node", ("subnet-1a", "subnet-2b"), ("sg-1a",), 200, "0.5", "my key")
    assert found.rdzv == InstanceSpec("c5.large", *common)
    assert found.worker == WorkerSpec("c5.large", *common, "me/train:1", "my-bucket", "jobs/me", "fs-1a")
    assert found.region == "eu-west-1"
    assert found.notices() == ()


def test_what_may_be_left_out_is_what_people_want_most_often() -> None:
    found = parse(given())
    assert (found.worker.ebs_volume_gb, found.worker.max_spot_price, found.worker.key_pair) == (128, "", "")
    assert (found.worker.s3_prefix, found.worker.efs_file_system_id, found.region) == ("", "", "")
    assert parse(given(key_pair=None, max_spot_price="", s3_prefix=None)) == found


@pytest.mark.parametrize("section", ["rdzv", "worker"])
def test_a_field_that_is_missing_is_named(section: str) -> None:
    table = COMMON if section == "rdzv" else OF_WORKERS
    for name, (_, needed) in table.items():
        if needed:
            assert f"{section}.{name} is missing" in refused(given(section, **{name: ...}))


@pytest.mark.parametrize(
    ("name", "wrong", "accepted"),
    [
        ("instance_type", "large", "c5.large"),
        ("instance_type", 5, "c5.large"),
        ("accelerator", "tpu", "none or gpu"),
        ("instance_role", "arn:aws:iam::1:instance-profile/node", "not its ARN"),
        ("subnets", "subnet-1a", "a list of ids"),
        ("subnets", [], "a list of ids"),
        ("subnets", ["sg-1a"], "subnet-0a1b2c3d"),
        ("security_groups", ["default"], "sg-0a1b2c3d"),
        ("ebs_volume_gb", 8, "from 30 to 65536"),
        ("ebs_volume_gb", "128", "a number of GB"),
        ("ebs_volume_gb", True, "a number of GB"),
        ("max_spot_price", "cheap", "0.50"),
        ("max_spot_price", 0, "0.50"),
        ("max_spot_price", -1, "0.50"),
        ("key_pair", ["a"], "the name of a key pair"),
        ("docker_image", "", "the name of an image"),
        ("docker_image", "a b", "the name of an image"),
        ("s3_bucket", "s3://my-bucket", "without s3://"),
        ("s3_prefix", "s3://my-bucket/jobs", "the beginning of keys"),
        ("efs_file_system_id", "my volume", "fs-0a1b2c3d"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_accepted(name: str, wrong: Any, accepted: str) -> None:
    said = refused(given(**{name: wrong}))
    assert f"worker.{name} is {json.dumps(wrong)}; accepted: " in said
    assert accepted in said


def test_every_field_of_the_tables_is_one_of_the_values() -> None:
    assert {field.name for field in fields(InstanceSpec)} == COMMON.keys()
    assert {field.name for field in fields(WorkerSpec)} == OF_WORKERS.keys()


def test_all_that_is_wrong_is_told_at_once() -> None:
    content = {**given(accelerator="tpu", colour="red", docker_image="<YOUR DOCKER IMAGE>"), "extra": {}, "region": 5}
    del content["rdzv"]["subnets"]
    assert refused(content).splitlines() == [
        "my.json:",
        "  unknown section 'extra'",
        "  rdzv.subnets is missing",
        f"  worker.colour: unknown field; there are {', '.join(OF_WORKERS)}",
        '  worker.accelerator is "tpu"; accepted: none or gpu',
        "  worker.docker_image is still <YOUR DOCKER IMAGE>: fill it in",
        "  region is 5; accepted: a region, such as us-west-2",
    ]
    assert refused({}).splitlines()[1:] == ["  the section rdzv is missing", "  the section worker is missing"]
    assert "an object with the sections" in refused([])


def test_the_sample_is_complete_but_for_its_placeholders() -> None:
    content = json.loads(SAMPLE.read_text())
    with pytest.raises(UsageError) as caught:
        read(str(SAMPLE))
    wrong = str(caught.value).splitlines()
    assert wrong[0] == f"{SAMPLE}:"
    left = [f"{section}.{name}" for section in content for name, value in content[section].items() if "<" in str(value)]
    assert len(left) == 10
    assert sorted(line.split()[0] for line in wrong[1:]) == sorted(left), "each placeholder is named, and nothing else"


def filled(value: Any) -> Any:
    """Fill in a placeholder as a user would."""
    found = {"SUBNET": "subnet-1a", "SECURITY": "sg-1a", "S3": "bucket", "EFS": "fs-1a", "EC2": "node", "DOCKER": "a:1"}
    if isinstance(value, list):
        return [filled(one) for one in value]
    return found[value.split()[1].rstrip(">")] if str(value).startswith("<YOUR ") else value


def test_the_sample_is_right_once_it_is_filled_in() -> None:
    content = json.loads(SAMPLE.read_text())
    made = {section: {name: filled(value) for name, value in content[section].items()} for section in content}
    assert parse(made).notices() == ()


@pytest.mark.parametrize(
    ("instance_type", "accelerator", "notice"),
    [
        ("p3.2xlarge", "none", "worker: p3.2xlarge has GPUs, but accelerator is none: it gets no drivers"),
        ("g4dn.xlarge", "none", "has GPUs"),
        ("gr6.4xlarge", "none", "has GPUs"),
        ("c5.large", "gpu", "worker: accelerator is gpu, but c5.large is not known to have GPUs"),
        ("p3.2xlarge", "gpu", ""),
        ("c5.large", "none", ""),
        ("m6g.large", "none", ""),
    ],
)
def test_an_accelerator_that_does_not_fit_the_type_gets_a_notice(
    instance_type: str, accelerator: str, notice: str
) -> None:
    told = parse(given(instance_type=instance_type, accelerator=accelerator)).notices()
    assert notice in "".join(told)
    assert len(told) == bool(notice)


def test_a_field_of_petctl_without_a_purpose_is_told_and_does_no_harm() -> None:
    found = parse(given("rdzv", user_data_template="user_data_rdzv"))
    assert found.notices() == ("rdzv.user_data_template of the specs file has no purpose here",)


def test_there_is_no_system_image_for_gpus_beside_arm_processors() -> None:
    assert "worker.accelerator is gpu, and for g5g.xlarge (arm64)" in refused(
        given(instance_type="g5g.xlarge", accelerator="gpu")
    )


@pytest.mark.parametrize(
    ("instance_type", "processors"),
    [(name, "arm64") for name in ("a1.large", "t4g.micro", "c7gn.large", "m8g.large", "im4gn.large", "x2gd.large")]
    + [(name, "x86_64") for name in ("c5.large", "g5.xlarge", "g4dn.xlarge", "p5en.48xlarge", "m7i-flex.large")],
)
def test_a_type_tells_its_processors(instance_type: str, processors: str) -> None:
    assert architecture(instance_type) == processors


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: path.write_text('{\n "rdzv": {\n  "a": 1,,\n'), "line 3 column 10"),
        (lambda path: path.write_bytes(b"\xff\xfe{}"), "no JSON"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: None, "No such file or directory; copy aws/config/sample_specs.json"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_with_where(tmp_path: Path, write: Callable[[Path], Any], said: str) -> None:
    path = tmp_path / "specs.json"
    write(path)
    with pytest.raises(UsageError) as caught:
        read(str(path))
    assert str(path) in str(caught.value) and said in str(caught.value)
    assert caught.value.exit_code == 2


def test_what_a_file_holds_is_kept_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "specs.json").write_text(json.dumps(given()))
    assert specs.read("~/specs.json") == given()


def test_every_field_is_explained() -> None:
    page = (ROOT / "docs" / "aws.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert not [name for name in (*OF_WORKERS, "region") if not any(f"`{name}`" in row for row in rows)]
