"""Logs as CloudWatch has them: one stream per instance, of this submission and no other."""

from __future__ import annotations

import time

from tests.jobs.aws.conftest import Cloud

BEGUN = int(time.time() * 1000) - 60_000


def write(cloud: Cloud, stream: str, *lines: tuple[int, str]) -> None:
    logs = cloud.client("logs")
    logs.create_log_stream(logGroupName="/lattice/me-job", logStreamName=stream)
    events = [{"timestamp": BEGUN + moment, "message": text} for moment, text in lines]
    logs.put_log_events(logGroupName="/lattice/me-job", logStreamName=stream, logEvents=events)


def test_lines_of_all_nodes_and_of_one_rank(cloud: Cloud) -> None:
    assert cloud.submit("me-job").code == 0
    found = cloud.status("me-job")
    first, second = (node["host"] for node in found["nodes"])
    many = [(3 + number // 100, f"[rank 0] line {number}") for number in range(2500)]
    write(cloud, f"{found['submission']}/{first}", (1, "lattice: round 1"), *many)
    write(cloud, f"{found['submission']}/{second}", (2, "[rank 1] other"), (2, "[rank 1]  [rank 0] not mine"))
    write(cloud, "me-job-00000000/i-0", (1, "[rank 0] of an older submission"))
    everything = cloud.run("logs", "me-job")
    assert everything.code == 0, everything.err
    lines = everything.out.splitlines()
    assert lines[:2] == ["[node 0] lattice: round 1", "[node 1] [rank 1] other"]
    assert len(lines) == 2503
    assert cloud.run("logs", "--rank", "0", "me-job").out.splitlines() == [f"line {number}" for number in range(2500)]
    assert cloud.run("logs", "--rank", "1", "me-job").out == "other\n [rank 0] not mine\n"
    assert cloud.run("logs", "--rank", "7", "me-job").code == 2


def test_what_is_forgotten_takes_its_logs_along_and_no_others(cloud: Cloud) -> None:
    assert cloud.submit("me-job").code == 0
    write(cloud, f"{cloud.status('me-job')['submission']}/i-1", (1, "mine"))
    write(cloud, "me-job-00000000/i-0", (1, "of an older submission"))
    assert cloud.run("kill", "me-job").code == 0
    assert "mine" in cloud.run("logs", "me-job").out, "a kill keeps them"
    assert cloud.run("forget", "me-job").code == 0
    streams = cloud.client("logs").describe_log_streams(logGroupName="/lattice/me-job")["logStreams"]
    assert [stream["logStreamName"] for stream in streams] == ["me-job-00000000/i-0"]
