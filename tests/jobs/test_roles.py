"""Roles of a job: what a file may say of them, and which run and rank each node gets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lattice.core.spec import NodeRange
from lattice.errors import UsageError
from lattice.jobs import meaning
from lattice.jobs.job import Job, Sidecar, Volume
from lattice.jobs.jobfile import read
from lattice.jobs.options import SUBMIT
from lattice.jobs.roles import ends_job, role_of, roles, run_id, seats
from lattice.jobs.unused import without_containers
from lattice.options.parsing import parse

FILE = """\
name: race
folder: project
framework: pytorch
max_restarts: 2
memory: 2Gi
env: {COLOUR: green, SIZE: small}
primary: learner
roles:
  worker:
    script: act.py
    args: [--fast]
    size: 2:3
    group: each
    max_restarts: 9
    env: {SIZE: large}
    if_failed: go_on
    sidecars:
      simulator:
        image: sim:1
        command: [run, --port, 9000]
        env: {A: b}
        cpu: 500m
    volumes:
      maps: {claim: maps, path: /maps, read_only: true}
      scratch: {path: /scratch}
  learner:
    command: [./learn, two words]
    cpu: 4
    gpus: 1
    memory: 8Gi
  evaluator:
    script: judge.py
    size: 1:2
    group: learner
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("act.py", "judge.py"):
        (project / name).write_text("")
    (tmp_path / "job.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job(*words: str) -> Job:
    return meaning.job(parse(["--file", "job.yaml", *words], {}, SUBMIT), read("job.yaml"))


def test_a_file_says_who_does_what() -> None:
    found = job()
    assert [role.name for role in found.roles] == ["learner", "worker", "evaluator"], "the primary one comes first"
    assert found.size == NodeRange(4, 6)
    learner, worker, _ = found.roles
    assert (learner.command, learner.size, learner.script) == (("./learn", "two words"), NodeRange(1, 1), "")
    assert learner.place_options == {"cpu": "4", "gpus": "1", "memory": "8Gi"}
    assert (worker.script, worker.arguments, worker.size) == ("act.py", ("--fast",), NodeRange(2, 3))
    assert dict(worker.run_options) == {"framework": "pytorch", "max_restarts": "9"}
    assert dict(learner.run_options) == {"framework": "pytorch", "max_restarts": "2"}, "as the job says"
    assert dict(worker.environment) == {"COLOUR": "green", "SIZE": "large"}
    assert worker.place_options == {"memory": "2Gi"}
    assert worker.sidecars == (Sidecar("simulator", "sim:1", ("run", "--port", "9000"), (("A", "b"),), cpu="500m"),)
    assert worker.volumes == (Volume("maps", "/maps", "maps", True), Volume("scratch", "/scratch"))
    assert Job.load(found.dump()) == found
    assert found.place_options == {}, "what only other places know is left out"


def test_every_node_has_its_run_and_its_rank_in_it() -> None:
    found = seats(job())
    told = [(seat.index, seat.role.name, run_id("r1", seat), str(seat.nodes), seat.rank) for seat in found]
    assert told == [
        (0, "learner", "r1.learner", "2:3", 0),
        (1, "worker", "r1.worker-0", "1", 0),
        (2, "worker", "r1.worker-1", "1", 0),
        (3, "worker", "r1.worker-2", "1", 0),
        (4, "evaluator", "r1.learner", "2:3", 1),
        (5, "evaluator", "r1.learner", "2:3", 2),
    ]
    assert [ends_job(job(), role) for role in roles(job())] == ["always", "never", "always"]


def test_a_job_without_roles_is_one_run(here: Path) -> None:
    (here / "train.py").write_text("")
    plain = meaning.job(parse(["--name", "j", "--size", "2", "train.py"], {}, SUBMIT), None)
    assert [(run_id("r1", seat), str(seat.nodes), seat.rank) for seat in seats(plain)] == [
        ("r1", "2", 0),
        ("r1", "2", 1),
    ]
    assert role_of(plain, "").name == "default"


def test_a_role_is_found_by_its_name() -> None:
    assert role_of(job(), "worker").name == "worker"
    with pytest.raises(UsageError, match=r"several roles: name one with --role \(learner, worker, evaluator\)"):
        role_of(job(), "")
    with pytest.raises(UsageError, match="race has no role 'judge'; there are learner, worker, evaluator"):
        role_of(job(), "judge")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("script: act.py", "scrpit: act.py", r"job\.yaml:10: unknown key 'scrpit'; did you mean script\?"),
        ("script: act.py", "cpu: 1", r"job\.yaml:9: role 'worker' needs either script or command"),
        ("script: act.py", "script: none.py", "there is no 'none.py' in"),
        ("size: 2:3", "size: 3:2", r"job\.yaml:12: size is '3:2'"),
        ("primary: learner", "primary: boss", r"job\.yaml:7: primary is 'boss', which is no role; there are worker"),
        ("primary: learner", "primary: worker", r"job\.yaml:9: worker is the primary role"),
        ("if_failed: go_on", "if_failed: shrug", r"job\.yaml:16: if_failed is 'shrug'; accepted: end_job or go_on"),
        ("image: sim:1", "memory: 1Gi", r"job\.yaml:18: sidecar 'simulator' has no image"),
        ("cpu: 500m", "cpu: lots", r"job\.yaml:22: cpu is 'lots'; accepted: a number"),
        ("path: /scratch", "path: scratch", r"job\.yaml:25: volume 'scratch' needs a path"),
        ("  worker:\n", "  Worker_1:\n", r"job\.yaml:9: a role is called 'Worker_1'; accepted: 1 to 20 of a-z"),
        ("folder: project", "no_upload: 0", "with roles the job needs folder"),
        ("folder: project", "folder: none", "there is no such folder here"),
        ("size: 1:2", "rdzv_endpoint: e:2379", "rdzv_endpoint belongs to the job"),
        ("folder: project", "folder: project\nscript: a.py", "script belongs to each of the roles"),
        ("folder: project", "folder: project\nsize: 4", r"job\.yaml:3: size belongs to each of the roles"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(here: Path, old: str, new: str, said: str) -> None:
    assert old in FILE
    (here / "job.yaml").write_text(FILE.replace(old, new))
    with pytest.raises(UsageError, match=said):
        job()


def test_what_only_containers_have_is_said_to_be_without_purpose() -> None:
    assert without_containers(job()) == (
        "without purpose on local, for only kubernetes has it: cpu, gpus, memory of learner; "
        "memory, sidecars, volumes of worker; memory of evaluator"
    )
    assert without_containers(replace(job(), roles=())) == ""
