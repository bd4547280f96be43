"""Jobs with roles keep the same promises everywhere: one suite over all places."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.places import Place, Said, opened
from tests.jobs.role_programs import race, written
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(400)
STARTED = 150.0
"""seconds in which nodes have come up on a busy machine"""
GO_ON = """\
folder: project
roles:
  learner: {script: serve.py, args: [0, 2]}
  worker: {script: fail.py, if_failed: go_on, size: '1:2', group: each}
  evaluator: {script: ask.py, max_restarts: 1}
"""
ONE_GROUP = """\
folder: project
roles:
  learner: {script: tell.py}
  judge: {script: tell.py, size: 2, group: learner}
"""


@pytest.fixture(
    params=["local", pytest.param("ssh", marks=pytest.mark.long), pytest.param("slurm", marks=pytest.mark.lab)]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with opened(request.param, tmp_path) as made:
        yield made


def submit(place: Place, name: str, file: str, *words: str) -> Said:
    said = place.submit(name, "--file", file, *words, size=0)
    assert said.code == 0, said.err
    return said


def logs(place: Place, name: str, role: str) -> str:
    return place.run("logs", "--role", role, name).out


def pids(place: Place, role: str) -> list[str]:
    """Whom of a role the learner of the race has heard, one after another."""
    return re.findall(f"heard {role} ([0-9]+)", logs(place, "race", "learner"))


def has_ended(place: Place, name: str, code: int) -> dict[str, Any]:
    """Wait for the end of a job, of which nothing may run then."""
    waited = place.run("wait", "--timeout", "200", name)
    assert waited.code == code, waited.err + place.run("logs", name).out
    found = place.status(name)
    assert found["exit_code"] == code
    assert not [node for node in found["nodes"] if node["state"] == "running"]
    eventually(lambda: not place.running(), within=60)
    return found


def test_workers_find_the_learner_whose_end_is_the_jobs(place: Place) -> None:
    submit(place, "race", race(place.folder))
    found = has_ended(place, "race", 0)
    assert found["state"] == "succeeded"
    assert [(node["role"], node["end"]) for node in found["nodes"]] == [
        ("learner", "run ended"),
        ("worker", "job ended"),
        ("worker", "job ended"),
    ]
    workers = logs(place, "race", "worker")
    assert (workers.count("learner heard worker"), workers.count("worker saved")) == (2, 2), workers
    assert set(re.findall(r"^\[node .*?\]", workers, re.MULTILINE)) == {"[node 1 worker]", "[node 2 worker]"}
    assert "saved" not in logs(place, "race", "learner")
    own = place.run("logs", "--role", "learner", "--rank", "0", "race").out
    assert len(re.findall("heard worker [0-9]+$", own, re.MULTILINE)) == 2, own
    shown = [line.split() for line in place.run("hosts", "race").out.splitlines()]
    assert [row[:2] for row in shown] == [["NODE", "ROLE"], ["0", "learner"], ["1", "worker"], ["2", "worker"]]


def test_a_failure_of_the_learner_is_the_jobs(place: Place) -> None:
    submit(place, "race", race(place.folder, code=7))
    found = has_ended(place, "race", 7)
    assert found["state"] == "failed"
    assert found["last_failure"].startswith("learner: rank 0 on "), found["last_failure"]
    assert logs(place, "race", "worker").count("worker saved") == 2


def test_a_failure_of_a_worker_ends_the_job(place: Place) -> None:
    submit(place, "race", race(place.folder, worker="fail.py", of_worker="group: each"))
    found = has_ended(place, "race", 9)
    assert (found["state"], [node["end"] for node in found["nodes"]]) == ("failed", ["job ended", "run ended"])
    assert found["last_failure"].startswith("worker: rank 0 on "), found["last_failure"]
    assert "learner saved" in logs(place, "race", "learner")


def test_a_job_goes_on_without_a_role_that_may_fail(place: Place) -> None:
    submit(place, "race", written(place.folder, GO_ON))
    eventually(lambda: [node["end"] for node in place.status("race")["nodes"][1:3]] == ["run ended"] * 2, STARTED)
    assert place.status("race")["state"] == "running"
    eventually(lambda: pids(place, "evaluator"), within=STARTED)
    os.kill(int(pids(place, "evaluator")[0]), signal.SIGKILL)  # it comes again, and is the second that is heard
    found = has_ended(place, "race", 0)
    assert [(node["end"], node["status"]) for node in found["nodes"]] == [
        ("run ended", 0),
        ("run ended", 9),
        ("run ended", 9),
        ("job ended", 0),
    ]
    assert found["last_failure"].startswith("worker: rank 0 on "), found["last_failure"]


def test_a_worker_that_is_one_by_itself_restarts_alone(place: Place) -> None:
    submit(place, "race", race(place.folder, of_worker="size: 2, group: each, max_restarts: 1", wanted=3))
    eventually(lambda: len(pids(place, "worker")) == 2, within=STARTED)
    os.kill(int(pids(place, "worker")[0]), signal.SIGKILL)
    found = has_ended(place, "race", 0)
    assert found["restarts"] == 1
    assert [node["restarts"] for node in found["nodes"]] in ([0, 1, 0], [0, 0, 1])
    assert len(set(pids(place, "worker"))) == 3
    assert logs(place, "race", "learner").count("pid ") == 1
    assert logs(place, "race", "worker").count("worker saved") == 2


def test_a_role_shrinks_and_grows_while_the_others_go_on(place: Place) -> None:
    file = race(place.folder, of_worker="size: '1:2', group: each", wanted=99)
    submit(place, "race", file)
    assert "nothing to do" in submit(place, "race", file).err

    def known() -> list[str]:
        """How many workers the learner knew of, one after another."""
        return re.findall("workers: ([0-9]+)", logs(place, "race", "learner"))

    eventually(lambda: known()[-1:] == ["2"], within=STARTED)
    shrunk = place.run("scale", "--role", "worker", "race", "1")
    assert shrunk.code == 0, shrunk.err
    eventually(lambda: known()[-1:] == ["1"], within=STARTED)
    found = place.status("race")
    assert [node["end"] or node["state"] for node in found["nodes"]] == ["running", "running", "left"]
    assert found["state"] == "running"
    assert "2 of 2:3" in place.run("status", "race").out
    grown = place.run("scale", "--role", "worker", "race", "2")
    assert grown.code == 0, grown.err
    eventually(lambda: known()[-1:] == ["2"], within=STARTED)
    refused = place.run("scale", "race", "1")
    assert (refused.code, "--role (learner, worker)" in refused.err) == (2, True)
    killed = place.run("kill", "race")
    assert killed.code == 0, killed.err
    assert has_ended(place, "race", 143)["state"] == "killed"
    assert "learner saved" in logs(place, "race", "learner")
    assert logs(place, "race", "worker").count("worker saved") == 3


def test_roles_of_one_group_are_one_world(place: Place) -> None:
    submit(place, "world", written(place.folder, ONE_GROUP))
    found = has_ended(place, "world", 0)
    assert [(node["end"], node["world"]) for node in found["nodes"]] == [("run ended", 3)] * 3
    told = [json.loads(place.run("logs", "--rank", str(rank), "world").out.partition("] ")[2]) for rank in range(3)]
    assert told == [["learner", "0", "3"], ["judge", "1", "3"], ["judge", "2", "3"]]
