"""The submitting process is killed after each call that changes something: run again, nothing is leaked or doubled."""

from __future__ import annotations

import pytest

from tests.jobs.aws.conftest import BUCKET, Cloud
from tests.tiers import quick_and_long

STEPS_OF_SUBMIT = 15
STEPS_OF_KILL = 9
JOURNAL = b'{"event": "agent started", "host": "a", "workers": 1, "time": "2026-01-01T00:00:00+00:00"}\n'


def steps(last: int, *quick: int) -> list[object]:
    """List all steps at which to crash; `make test` tries only some of them."""
    return quick_and_long(quick, sorted({*range(last + 1)} - {*quick}))


def one_set(cloud: Cloud) -> None:
    made = cloud.resources()
    (submission,) = {name.rpartition("-")[0] for name in made["templates"]}
    assert made["groups"] == made["leases"] == ["me-job_rdzv", "me-job_worker"]
    assert made["templates"] == [f"{submission}-rdzv", f"{submission}-worker"]
    assert made["secrets"] == [f"/lattice/{submission}/{name}" for name in ("certificate", "key", "password")]
    assert len(made["instances"]) == 3
    assert made["logs"] == ["/lattice/me-job"]
    assert [key.rpartition("/")[2][-7:] for key in made["objects"]] == [".tar.gz", "ob.json"]
    assert not made["uploads"]


def changing(cloud: Cloud) -> list[str]:
    return [call for call in cloud.calls if not call.startswith(("Describe", "Get", "Head", "List", "Filter"))]


def nothing(cloud: Cloud) -> None:
    for words in (["kill", "--grace", "0"], ["forget"]):
        said = cloud.run(*words, "me-job")
        assert said.code == 0 or "no job 'me-job'" in said.err, said.err
    assert not any(cloud.resources().values())


def test_the_number_of_steps(cloud: Cloud) -> None:
    assert cloud.submit("me-job").code == 0
    assert len(changing(cloud)) == STEPS_OF_SUBMIT, changing(cloud)
    submission = cloud.status("me-job")["submission"]
    run(cloud, submission)
    assert cloud.run("kill", "--grace", "0", "me-job").code == 0
    assert len(changing(cloud)) == STEPS_OF_KILL, changing(cloud)


def run(cloud: Cloud, submission: str) -> None:
    """Have a node that says it runs."""
    groups = cloud.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=["me-job_worker"])
    instance = groups["AutoScalingGroups"][0]["Instances"][0]["InstanceId"]
    key = f"jobs/me-job/{submission}/nodes/{instance}.jsonl"
    cloud.client("s3").put_object(Bucket=BUCKET, Key=key, Body=JOURNAL)


@pytest.mark.parametrize("step", steps(STEPS_OF_SUBMIT, 1, 7, 13, 15))
def test_a_submission_that_dies_on_the_way(cloud: Cloud, step: int) -> None:
    assert cloud.submit("me-job", die=step).code == -9
    nothing(cloud)
    assert cloud.submit("me-job", die=step).code == -9
    again = cloud.submit("me-job")
    assert again.code == 0, again.err
    one_set(cloud)
    nothing(cloud)


@pytest.mark.parametrize("step", steps(STEPS_OF_KILL, 1, 5, 9))
def test_a_kill_that_dies_on_the_way(cloud: Cloud, step: int) -> None:
    assert cloud.submit("me-job").code == 0
    run(cloud, cloud.status("me-job")["submission"])
    assert cloud.run("kill", "--grace", "0", "me-job", die=step).code == -9
    nothing(cloud)
