"""Learner and workers as roles of a job: they find each other, know each other's key, and end together."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
import yaml

from lattice.core.roles import KEY
from lattice.core.spec import JobSpec, StoreSpec
from lattice.environments.job import job_variables
from tests.jobs.places import Place, local
from tests.rl import race
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(180)
EXAMPLES = Path(__file__).parents[2] / "examples" / "rl"
LEARNER = """\
import os, sys
from lattice.rl import Goal, Learner, LearnerSettings, OnPolicyQueue
from tests.rl.race import Remembering
print("pid", os.getpid(), flush=True)
settings = LearnerSettings(results=sys.argv[1], checkpoint_every=0.3, metrics_every=0.3)
print(Learner(Remembering(), OnPolicyQueue(2), Goal(updates=int(sys.argv[2])), settings).run(), flush=True)
"""
WORKER = """\
import os, sys
from lattice.rl import Worker, WorkerSettings
from tests.rl.race import Numbered, Same
print("pid", os.getpid(), flush=True)
print(Worker(Numbered, Same, WorkerSettings(patience=1.0)).run(), flush=True)
"""
JOB = """\
folder: project
primary: learner
roles:
  learner: {{script: learn.py, args: [{results}, {updates}], max_restarts: 3}}
  worker: {{script: play.py, size: 2, group: each, max_restarts: 5, if_failed: go_on}}
"""


def pids(place: Place, role: str) -> list[int]:
    return [int(pid) for pid in re.findall(r"pid (\d+)", place.run("logs", "--role", role, "race").out)]


def test_the_goal_ends_the_job_although_learner_and_worker_were_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, results = tmp_path / "project", tmp_path / "results"
    project.mkdir()
    (project / "learn.py").write_text(LEARNER)
    (project / "play.py").write_text(WORKER)
    (tmp_path / "job.yaml").write_text(JOB.format(results=results, updates=1500))
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(root / "src"), str(root))))
    with local(tmp_path) as place:
        said = place.submit("race", "--file", "job.yaml", size=0)
        assert said.code == 0, said.err
        try:
            eventually(lambda: [row for row in race.metrics(results) if row["workers"] == 2], within=60)
            os.kill(pids(place, "worker")[0], signal.SIGKILL)
            eventually(lambda: len(pids(place, "worker")) == 3, within=60)
            os.kill(pids(place, "learner")[0], signal.SIGKILL)
            eventually(lambda: [row for row in race.metrics(results) if row["life"] == 2], within=60)
            assert place.run("wait", "--timeout", "90", "race").code == 0, place.run("logs", "race").out
            found = place.status("race")
            assert (found["state"], found["exit_code"], found["restarts"]) == ("succeeded", 0, 2)
            learner = place.run("logs", "--role", "learner", "race").out
            assert "Learned(reason='1500 updates of 1500', finished=True" in learner
            workers = place.run("logs", "--role", "worker", "race").out
            assert workers.count("Worked(reason='1500 updates of 1500'") == 2, "both were told goodbye"
        finally:
            place.run("kill", "race")
        eventually(lambda: not place.running(), within=60)
    taken: dict[str, list[int]] = {}
    for row in race.rewards(results):
        taken.setdefault(row["worker"], []).append(row["number"])
    assert len(taken) == 3
    for numbers in taken.values():
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_the_same_file_is_a_job_on_kubernetes(name: str, tmp_path: Path) -> None:
    with local(tmp_path) as place:
        said = place.run(
            *("render", "--file", str(EXAMPLES / f"{name}.yaml"), "--on", "kubernetes", "--image", "me/rl:1"),
            *("-o", "out"),
        )
    assert said.code == 0, said.err
    made = [
        one
        for path in sorted((tmp_path / "out").rglob("*.yaml"))
        for one in yaml.safe_load_all(path.read_text())
        if one
    ]
    sets = {one["metadata"]["name"]: one["spec"]["replicas"] for one in made if one["kind"] == "StatefulSet"}
    assert sorted(count for role, count in sets.items() if "worker" in role) == [3]
    assert [count for role, count in sets.items() if "learner" in role] == [1]


def test_the_key_of_a_job_is_made_from_the_password_of_its_store() -> None:
    one = job_variables(JobSpec("a"), StoreSpec(password="secret"))
    assert set(one) == {KEY} and len(one[KEY]) == 64 and "secret" not in one[KEY]
    assert one == job_variables(JobSpec("a", ("learner",)), StoreSpec(password="secret", user="root"))
    assert one != job_variables(JobSpec("b"), StoreSpec(password="secret"))
    assert one != job_variables(JobSpec("a"), StoreSpec(password="other"))
    assert job_variables(JobSpec("a"), StoreSpec()) == job_variables(JobSpec(), StoreSpec(password="secret")) == {}
