"""AWS says no: what was wrong is said with what to do, and nothing is left behind."""

from __future__ import annotations

import pytest

from lattice.jobs.aws.client import AwsFailed
from lattice.jobs.aws.deployment import Deployment
from lattice.jobs.aws.plan import Names
from lattice.jobs.aws.views import Part, Seen
from lattice.jobs.backends import aws
from tests.jobs.aws.conftest import Cloud

DENIED = """\
<ErrorResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><Error><Type>Sender</Type>
<Code>{code}</Code><Message>{message}</Message></Error><RequestId>1</RequestId></ErrorResponse>"""


def answer(code: str, message: str, match: str, times: int = 1000, status: int = 400) -> dict[str, object]:
    """Make an answer in place of AWS's own to requests that contain something."""
    return {"match": match, "status": status, "body": DENIED.format(code=code, message=message), "times": times}


def unharmed(cloud: Cloud) -> None:
    assert not any(cloud.resources().values())
    unknown = cloud.run("status", "me-job")
    assert (unknown.code, "no job 'me-job'" in unknown.err) == (2, True), unknown.err


def test_no_region(cloud: Cloud) -> None:
    del cloud.specs["region"]
    said = cloud.submit("me-job")
    assert (said.code, "no AWS region" in said.err) == (2, True), said.err
    unharmed(cloud)


def test_no_credentials(cloud: Cloud) -> None:
    said = cloud.submit("me-job", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    assert (said.code, "no AWS credentials" in said.err, "aws configure" in said.err) == (1, True, True), said.err
    unharmed(cloud)


def test_no_bucket(cloud: Cloud) -> None:
    cloud.specs["worker"]["s3_bucket"] = "nobodys-bucket"
    said = cloud.submit("me-job")
    assert (said.code, "worker.s3_bucket" in said.err) == (1, True), said.err
    unharmed(cloud)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("AccessDenied", "needs the permission autoscaling:CreateAutoScalingGroup"),
        ("LimitExceeded", "higher quota"),
        ("ValidationError", "refused create_auto_scaling_group: so it is (ValidationError)"),
    ],
)
def test_a_failure_half_way_leaves_nothing(cloud: Cloud, code: str, said: str) -> None:
    cloud.answers = [answer(code, "so it is", "AutoScalingGroupName=me-job_worker&LaunchTemplate")]
    failed = cloud.submit("me-job")
    assert (failed.code, said in failed.err) == (1, True), failed.err
    assert "deleting group me-job_rdzv" in failed.err
    cloud.answers = []
    unharmed(cloud)


def test_what_cannot_be_rolled_back_is_said_and_can_be_ended_later(cloud: Cloud) -> None:
    cloud.answers = [
        answer("AccessDenied", "not you", "AutoScalingGroupName=me-job_worker&LaunchTemplate"),
        answer("AccessDenied", "not you", "Action=DeleteAutoScalingGroup"),
    ]
    failed = cloud.submit("me-job")
    assert failed.code == 1
    assert "lattice kill me-job" in failed.err and "group me-job_rdzv" in failed.err, failed.err
    assert cloud.resources()["groups"] == ["me-job_rdzv"]
    assert not cloud.resources()["instances"], "a group gets its size last"
    cloud.answers = []
    assert cloud.run("kill", "me-job").code == 0
    assert cloud.run("forget", "me-job").code == 0
    unharmed(cloud)


def test_being_turned_away_for_a_while_is_waited_out(cloud: Cloud) -> None:
    cloud.answers = [answer("Throttling", "Rate exceeded", "Action=PutScheduledUpdateGroupAction", times=2)]
    said = cloud.submit("me-job")
    assert said.code == 0, said.err
    assert cloud.resources()["leases"] == ["me-job_rdzv", "me-job_worker"]


def test_an_account_that_cannot_be_asked_is_said_and_hides_no_other_job(cloud: Cloud) -> None:
    assert cloud.submit("me-job").code == 0
    known = dict(cloud.variables)
    cloud.variables |= {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    shown = cloud.run("status", "me-job")
    assert (shown.code, "no AWS credentials" in shown.out) == (0, True), shown
    assert "me-job" in cloud.run("list").out
    assert cloud.run("kill", "me-job").code == 1
    cloud.variables.update(known)
    assert cloud.run("kill", "me-job").code == 0


class Stuck(Deployment):
    """AWS starts nothing, and says why in a scaling activity."""

    def __init__(self, *reasons: str, of_etcd: str = "") -> None:
        self.called = Names("me-job", "me-job-1", "bucket", "")
        self._reasons = list(reasons)
        self._of_etcd = of_etcd

    def parts(self) -> list[Part]:
        reason = self._reasons.pop(0)
        return [Part(Seen(() if reason else ("i-1",), 1, trouble=reason), 1, 1)]

    def etcd(self) -> Seen:
        return Seen(() if self._of_etcd else ("i-9",), 1, trouble=self._of_etcd)


QUOTA = (
    "You have requested more vCPU capacity than your current vCPU limit of 0 allows for the instance bucket that the "
    "specified instance type belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an "
    "adjustment to this limit. Launching EC2 instance failed."
)
LACKING = (
    "We currently do not have sufficient p4d.24xlarge capacity in the Availability Zone you requested "
    "(eu-central-1a). Launching EC2 instance failed."
)


def test_a_quota_is_an_error_and_a_lack_of_capacity_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aws, "POLL", 0.0)
    said: list[str] = []
    with pytest.raises(AwsFailed, match=r"starts no instances for me-job_worker: .*vCPU"):
        aws.AwsBackend()._watch_start(Stuck(QUOTA), said.append)
    with pytest.raises(AwsFailed, match=r"starts no instances for me-job_rdzv: .*vCPU"):
        aws.AwsBackend()._watch_start(Stuck("", of_etcd=QUOTA), said.append)
    aws.AwsBackend()._watch_start(Stuck(LACKING, LACKING, ""), said.append)
    assert said[-2:] == [f"1 of 2 instances are there: {LACKING}", "2 of 2 instances are there"]


ABSENT = """\
<DescribeAutoScalingGroupsResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/">
<DescribeAutoScalingGroupsResult><AutoScalingGroups><member><AutoScalingGroupName>me-job_rdzv</AutoScalingGroupName>
<DesiredCapacity>1</DesiredCapacity><Instances/><Tags><member><Key>lattice:submission</Key><Value>{submission}</Value>
</member></Tags></member></AutoScalingGroups></DescribeAutoScalingGroupsResult></DescribeAutoScalingGroupsResponse>"""
ACTIVITY = """\
<DescribeScalingActivitiesResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/">
<DescribeScalingActivitiesResult><Activities><member><ActivityId>1</ActivityId><StatusCode>Failed</StatusCode>
<StatusMessage>{message}</StatusMessage></member></Activities></DescribeScalingActivitiesResult>
</DescribeScalingActivitiesResponse>"""


def test_nodes_that_wait_say_that_etcd_gets_no_instance(cloud: Cloud) -> None:
    assert cloud.submit("me-job").code == 0
    submission = cloud.status("me-job")["submission"]
    group, activities = ABSENT.format(submission=submission), ACTIVITY.format(message=LACKING)
    cloud.answers = [
        {"match": "AutoScalingGroupNames.member.1=me-job_rdzv", "status": 200, "body": group, "times": 1000},
        {"match": "Action=DescribeScalingActivities", "status": 200, "body": activities, "times": 1000},
    ]
    assert [node["report"] for node in cloud.status("me-job")["nodes"]] == [f"etcd: {LACKING}"] * 2


def test_a_page_that_is_no_answer_of_aws(cloud: Cloud) -> None:
    page = {"match": "AutoScalingGroupName=me-job_worker&LaunchTemplate", "status": 500, "body": "<!doctype html>oh"}
    cloud.answers = [{**page, "times": 1000}]
    failed = cloud.submit("me-job")
    assert (failed.code, "create_auto_scaling_group: Unable to parse" in failed.err) == (1, True), failed.err
    assert "Traceback" not in failed.err
    unharmed(cloud)
