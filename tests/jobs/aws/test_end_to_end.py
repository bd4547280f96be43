"""Whole jobs on AWS, until the last instance is gone: user data of moto's instances, run on hosts of the lab."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest

from lattice.jobs.aws.plan import LEASE
from lattice.jobs.aws.userdata import SERVER_NAME
from tests.jobs.aws.instances import START_TIMEOUT, AwsPlace, place, running_cloud, warm
from tests.jobs.role_programs import race
from tests.lab.cloud import WRAPPED
from tests.waiting import eventually

__all__ = ["place", "running_cloud", "warm"]
# tests/sharing.py keeps these in one process: the cloud is made once.
pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

QUICK = ("--rdzv_conf", "lease_ttl=3,last_call=1,grow_interval=1")
ARGUMENTS = ["two words", "", 'it\'s $HOME `id` $(id) \\ "quoted" *', "a\nb\n", "größe 日本", "--", "-x", "--help"]
TRAIN = """\
import json, os, pathlib, platform, signal, sys, time
folder = pathlib.Path("/mnt/efs1")
about = {name.lower(): int(os.environ["LATTICE_" + name]) for name in ("ROUND", "RANK", "WORLD_SIZE", "RESTART_COUNT")}
about |= {"host": platform.node(), "arguments": sys.argv[1:], "environment": dict(os.environ)}
name = "{round}-{rank}".format(**about)
(folder / name).write_text(json.dumps(about))
(folder / name).rename(folder / (name + ".json"))
print("training", name, flush=True)

def save(*_):
    (folder / (name + ".saved")).touch()
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
while not (folder / "go").exists():
    time.sleep(0.1)
if about["rank"] == 1:
    sys.exit(int((folder / "go").read_text() or 0))
time.sleep(1000 if (folder / "go").read_text() else 0)
"""


class Job:
    """A job whose workers say in EFS who they are, and go on until told."""

    def __init__(self, place: AwsPlace, name: str, *words: str, size: int = 2) -> None:
        self.place, self.cloud, self.name = place, place.cloud, name
        self.efs = self.cloud.efs
        (place.folder / "train.py").write_text(TRAIN)
        said = place.submit(name, *QUICK, *words, size=size)
        assert said.code == 0, said.err

    def round(self, world: int, after: int = 0) -> dict[int, dict[str, Any]]:
        """Wait for a round of so many workers, after another, and give what each says of itself, by rank."""

        def look() -> dict[int, dict[str, Any]]:
            said = [json.loads(file.read_text()) for file in self.efs.glob("*.json")]
            newest = max((one["round"] for one in said), default=0)
            found = {one["rank"]: one for one in said if one["round"] == newest}
            assert newest > after, said
            assert {one["world_size"] for one in found.values()} == {world} == {len(found)}, said
            return found

        return eventually(look, within=START_TIMEOUT)

    def go(self, status: int = 0) -> None:
        """Let the workers end; the second one with a status, which leaves the first one hanging."""
        fresh = self.efs / "fresh"
        fresh.write_text(str(status or ""))
        fresh.rename(self.efs / "go")

    @property
    def workers(self) -> list[str]:
        """Instances of workers."""
        return self.cloud.instances(f"{self.name}_worker")

    @property
    def rdzv(self) -> list[str]:
        """Instances of etcd."""
        return self.cloud.instances(f"{self.name}_rdzv")

    def ends_by_itself(self) -> None:
        """Wait until the job has ended its instances, without us."""

        def none_left() -> bool:
            assert (self.workers, self.rdzv) == ([], []), "instances of workers, and of etcd"
            return True

        eventually(none_left, within=START_TIMEOUT)

    def lease(self) -> datetime:
        """Tell when AWS ends the job if nobody says otherwise."""
        found = self.cloud.call("autoscaling", "describe_scheduled_actions")["ScheduledUpdateGroupActions"]
        times = [one["StartTime"] for one in found if one["AutoScalingGroupName"].startswith(f"{self.name}_")]
        assert len(times) == 2, found
        soonest: datetime = min(times)
        return soonest

    def terminate(self, instance: str) -> None:
        """Have AWS end an instance; its group has another one then."""
        self.cloud.call("ec2", "terminate_instances", InstanceIds=[instance])

    def inside(self, instance: str, *argv: str) -> tuple[bool, str]:
        """Run a program in the worker's container on an instance."""
        done = self.cloud.docker(instance, "exec", "--env", "ETCDCTL_API=3", "lattice-worker", *argv)
        return done.returncode == 0, done.stdout + done.stderr


def nothing_left(place: AwsPlace) -> None:
    """See that there is nothing in the account that costs, or tells secrets; leases go with their groups."""
    call = place.cloud.call
    assert call("autoscaling", "describe_auto_scaling_groups")["AutoScalingGroups"] == []
    assert call("ec2", "describe_launch_templates")["LaunchTemplates"] == []
    assert call("ssm", "get_parameters_by_path", Path="/lattice", Recursive=True)["Parameters"] == []
    assert not place.running()


def test_a_job_outlives_an_instance_and_ends_its_own(place: AwsPlace) -> None:
    job = Job(place, "first", "train.py", "--", *ARGUMENTS)
    first = job.round(2)
    assert [one["arguments"] for one in first.values()] == [ARGUMENTS, ARGUMENTS]
    eventually(lambda: place.status("first")["state"] == "running", within=60)
    victim, other = job.workers
    told = place.run("hosts", "first").out
    assert victim in told and other in told
    assert "training" in job.cloud.docker(victim, "logs", "lattice-worker").stdout, "docker logs, on the instance"
    check_who_may_ask_etcd(job, victim, [json.dumps(one) for one in first.values()])
    # The first lease was made before the instances were, so one that ends this late was moved since.
    moved = job.cloud.launched(other) + LEASE + timedelta(seconds=3)
    eventually(lambda: job.lease() > moved, within=60)

    job.terminate(victim)
    second = job.round(2, after=first[0]["round"])
    assert {one["host"] for one in second.values()} != {one["host"] for one in first.values()}
    assert {one["restart_count"] for one in second.values()} == {0}, "a lost node uses no restart"
    assert other in job.workers

    job.go()
    job.ends_by_itself()
    assert place.run("wait", "first").code == 0
    found = place.reaches("first", "succeeded")
    assert (found["exit_code"], found["restarts"]) == (0, 0)
    lines = {str(rank): f"training {one['round']}-{rank}\n" for rank, one in second.items()}
    eventually(lambda: all(lines[rank] in place.run("logs", "--rank", rank, "first").out for rank in lines), within=90)
    nothing_left(place)


def check_who_may_ask_etcd(job: Job, instance: str, told: list[str]) -> None:
    """See that etcd answers over TLS, to those who have the password, which no script and no user data is told."""
    _, endpoint = job.inside(instance, "cat", "/var/lib/lattice/endpoints")
    _, password = job.inside(instance, "cat", "/var/lib/lattice/password")
    assert password and not any(password in text for text in told)
    assert not any(password in file.read_text() for file in job.cloud.state.glob("hosts/*/user-data"))
    # Its certificate is for a name, which agents know without looking it up; etcdctl cannot.
    address, _, port = endpoint.partition(":")
    job.inside(instance, "sh", "-c", f"echo {address} {SERVER_NAME} >> /etc/hosts")
    ask = ["etcdctl", "--command-timeout", "5s", "--cacert", "/var/lib/lattice/ca.pem", "get", "--prefix", "/lattice/"]
    tls = ["--endpoints", f"https://{SERVER_NAME}:{port}"]
    answered, said = job.inside(instance, *ask, *tls, "--user", f"root:{password}")
    assert answered and "first" in said, said
    for more in (tls, [*tls, "--user", "root:wrong"], ["--endpoints", f"http://{endpoint}"]):
        answered, said = job.inside(instance, *ask, *more)
        assert not answered and "first" not in said, said


def test_a_replaced_etcd_is_found_again(place: AwsPlace) -> None:
    job = Job(place, "second", "train.py")
    first = job.round(2)
    (old,) = job.rdzv
    workers = job.workers
    before = {job.inside(one, "cat", "/var/lib/lattice/endpoints")[1] for one in workers}
    job.terminate(old)

    def found_again() -> bool:
        now = {job.inside(one, "cat", "/var/lib/lattice/endpoints")[1] for one in workers}
        return len(now) == 1 and now != before

    eventually(found_again, within=START_TIMEOUT)
    assert job.workers == workers
    job.go()
    job.ends_by_itself()
    assert place.run("wait", "second").code == 0
    assert job.round(2) == first, "no worker was started anew"


def test_a_notice_and_a_kill_let_workers_save(place: AwsPlace) -> None:
    job = Job(place, "third", "--size", "1:2", "train.py")
    first = job.round(2)
    leaving = job.workers[0]
    (rank,) = [one["rank"] for one in first.values() if one["host"] == job.cloud.host_name(leaving)]
    job.cloud.give_notice(leaving)
    eventually((job.efs / f"{first[0]['round']}-{rank}.saved").exists, within=60)
    (alone,) = job.round(1, after=first[0]["round"]).values()
    assert alone["restart_count"] == 0, "who leaves does not fail"
    assert alone["host"] != first[rank]["host"]
    job.terminate(leaving)  # as AWS does two minutes later
    both = job.round(2, after=alone["round"])

    killed = place.run("kill", "--grace", "60", "third")
    assert killed.code == 0, killed.err
    assert {file.stem for file in job.efs.glob(f"{both[0]['round']}-*.saved")} == {
        f"{both[0]['round']}-{i}" for i in both
    }
    assert place.status("third")["state"] == "killed"
    nothing_left(place)
    forgotten = place.run("forget", "third")
    assert forgotten.code == 0, forgotten.err
    assert not job.cloud.call("s3", "list_objects_v2", Bucket=job.cloud.bucket).get("Contents")


def test_roles_find_each_other_and_end_together(place: AwsPlace) -> None:
    file = race(place.folder, of_worker="size: 2, group: each")
    said = place.submit("race", "--file", file, *QUICK, "--shutdown_timeout", "5", size=0)
    assert said.code == 0, said.err
    assert place.run("wait", "race").code == 0
    place.reaches("race", "succeeded")

    def ends() -> list[tuple[str, str, int]]:
        return [(node["role"], node["end"], node["status"]) for node in place.status("race")["nodes"]]

    # The job is over as soon as one of them says so; each tells of itself before its instance goes.
    all_told = [("learner", "run ended", 0), ("worker", "job ended", 0), ("worker", "job ended", 0)]
    eventually(lambda: ends() == all_told, within=60)
    eventually(lambda: place.run("logs", "--role", "worker", "race").out.count("worker saved") == 2, within=90)
    assert "worker saved" not in place.run("logs", "--role", "learner", "race").out
    eventually(lambda: not place.running(), within=START_TIMEOUT)
    assert place.status("race")["state"] == "succeeded"
    nothing_left(place)


def test_an_image_with_its_own_entry_point_and_a_script_that_fails(place: AwsPlace) -> None:
    place.use(WRAPPED)
    job = Job(place, "fourth", "train.py", size=1)
    assert {one["environment"].get("WRAPPED") for one in job.round(2).values()} == {"yes"}
    job.go(7)
    job.ends_by_itself()
    assert place.run("wait", "fourth").code == 7
    found = place.reaches("fourth", "failed")
    assert found["exit_code"] == 7
    assert "rank 1" in found["last_failure"]
    nothing_left(place)


def test_aws_ends_a_job_that_nobody_looks_after(place: AwsPlace) -> None:
    job = Job(place, "fifth", "train.py", size=1)
    job.round(1)
    (worker,), (etcd,) = job.workers, job.rdzv
    for instance in (worker, etcd):
        job.cloud.cut(instance)
    job.cloud.bring_forward("fifth_worker", "fifth_rdzv")  # an hour is long for a test
    job.ends_by_itself()
    assert place.status("fifth")["state"] == "lost"
    killed = place.run("kill", "fifth")
    assert killed.code == 0, killed.err
    nothing_left(place)
