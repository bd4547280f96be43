"""Submitting, asking, scaling and ending against moto's server: nothing runs on these instances."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile

from tests.jobs.aws.conftest import BUCKET, Cloud


def test_a_submission_makes_one_set_of_everything_and_a_kill_leaves_nothing_that_bills(cloud: Cloud) -> None:
    said = cloud.submit("me-job")
    assert said.code == 0, said.err
    made = cloud.resources()
    assert made["groups"] == ["me-job_rdzv", "me-job_worker"] == made["leases"]
    assert (len(made["templates"]), len(made["instances"]), len(made["secrets"])) == (2, 3, 3)
    found = cloud.status("me-job")
    assert (found["state"], [node["state"] for node in found["nodes"]]) == ("waiting", ["prepared", "prepared"])
    killed = cloud.run("kill", "me-job")
    assert killed.code == 0, killed.err
    left = cloud.resources()
    assert not any(left[kind] for kind in ("groups", "leases", "templates", "instances", "secrets")), left
    assert cloud.status("me-job")["state"] == "killed"
    forgotten = cloud.run("forget", "me-job")
    assert forgotten.code == 0, forgotten.err
    assert not any(cloud.resources().values())


def test_the_same_again_makes_nothing_and_another_job_of_that_name_is_refused(cloud: Cloud) -> None:
    assert cloud.submit("me-job").code == 0
    made = cloud.resources()
    again = cloud.submit("me-job")
    assert (again.code, "already" in again.err) == (0, True), again.err
    other = cloud.submit("me-job", "train.py", "--", "--lr", "0.2")
    assert (other.code, "lattice kill me-job" in other.err) == (2, True), other.err
    assert cloud.resources() == made


def test_a_job_of_somebody_else_is_neither_adopted_nor_harmed(cloud: Cloud) -> None:
    assert cloud.submit("me-job").code == 0
    made = cloud.resources()
    refused = cloud.submit("me-job", LATTICE_HOME=str(cloud.folder / "elsewhere"))
    assert (refused.code, "somebody else" in refused.err) == (2, True), refused.err
    assert cloud.resources() == made
    gone = cloud.run("status", "me-job", LATTICE_HOME=str(cloud.folder / "elsewhere"))
    assert (gone.code, "no job 'me-job'" in gone.err) == (2, True)


def test_a_job_is_scaled_within_its_size(cloud: Cloud) -> None:
    assert cloud.submit("me-job", size="1:3").code == 0
    assert len(cloud.resources()["instances"]) == 4
    assert cloud.run("scale", "me-job", "1").code == 0
    assert len(cloud.resources()["instances"]) == 2
    assert [node["state"] for node in cloud.status("me-job")["nodes"]] == ["prepared"]
    assert cloud.run("scale", "me-job", "4").code == 2
    assert cloud.run("scale", "me-job", "3").code == 0
    assert len(cloud.status("me-job")["nodes"]) == 3


def test_code_that_is_there_is_not_sent_again(cloud: Cloud) -> None:
    assert cloud.submit("me-job").code == 0
    assert cloud.run("kill", "me-job").code == 0
    first = cloud.client("s3").list_objects_v2(Bucket=BUCKET)["Contents"][0]
    again = cloud.submit("me-job")
    assert (again.code, "already" in again.err) == (0, True), again.err
    keys = cloud.client("s3").list_objects_v2(Bucket=BUCKET)["Contents"]
    assert first["LastModified"] in [one["LastModified"] for one in keys if one["Key"] == first["Key"]]


def test_a_large_folder_goes_in_parts_and_says_how_far_it_is(cloud: Cloud) -> None:
    project = cloud.folder / "project"
    project.mkdir()
    (project / "train.py").write_text("")
    (project / "data").write_bytes(os.urandom(20_000_000))
    (project / ".latticeignore").write_text("secret.txt\n")
    (project / "secret.txt").write_text("no")
    said = cloud.submit("me-job", "project", "train.py")
    assert said.code == 0, said.err
    assert {"CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"} <= set(cloud.calls)
    (key,) = (key for key in cloud.resources()["objects"] if key.endswith(".tar.gz"))
    body = cloud.client("s3").get_object(Bucket=BUCKET, Key=key)["Body"].read()
    assert hashlib.sha256(body).hexdigest() in key
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        assert sorted(tar.getnames()) == [".latticeignore", "data", "train.py"]


def test_code_that_another_submission_of_the_name_uses_stays(cloud: Cloud) -> None:
    assert cloud.submit("me-job").code == 0
    assert cloud.run("kill", "me-job").code == 0
    elsewhere = str(cloud.folder / "elsewhere")
    assert cloud.submit("me-job", LATTICE_HOME=elsewhere).code == 0
    made = cloud.resources()
    assert cloud.run("forget", "me-job").code == 0
    mine = [key for key in made["objects"] if key not in cloud.resources()["objects"]]
    assert not any(key.endswith((".tar.gz", "job.json")) for key in mine), mine
    assert cloud.run("kill", "me-job", LATTICE_HOME=elsewhere).code == 0
    assert cloud.run("forget", "me-job", LATTICE_HOME=elsewhere).code == 0
    assert not any(cloud.resources().values())


def test_earlier_versions_of_the_code_go_with_the_job(cloud: Cloud) -> None:
    for version in ("print(1)\n", "print(2)\n"):
        (cloud.folder / "train.py").write_text(version)
        assert cloud.submit("me-job").code == 0
        assert cloud.run("kill", "me-job").code == 0
    s3 = cloud.client("s3")
    s3.create_multipart_upload(Bucket=BUCKET, Key=f"jobs/me-job/{'0' * 64}.tar.gz")  # by one that was killed
    foreign = ["jobs/me-job/results.tar.gz", f"jobs/me-job-2/{'0' * 64}.tar.gz"]
    for key in foreign:
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"")
    assert cloud.run("forget", "me-job").code == 0
    left = cloud.resources()
    assert (left["objects"], left["uploads"]) == (sorted(foreign), [])


def test_half_an_upload_of_files_that_have_changed_since_is_aborted(cloud: Cloud) -> None:
    assert cloud.submit("me-job", die=0).code == -9
    digest = json.loads((cloud.folder / "home/jobs/me-job.json").read_text())["facts"]["code"]["digest"]
    cloud.client("s3").create_multipart_upload(Bucket=BUCKET, Key=f"jobs/me-job/{digest}.tar.gz")
    (cloud.folder / "train.py").write_text("print('changed')\n")
    assert cloud.submit("me-job").code == 0
    assert not cloud.resources()["uploads"]
