"""A job with roles on AWS: a group of instances for each, which end together; nothing runs on these instances."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lattice.core.spec import NodeRange
from lattice.errors import UsageError
from lattice.jobs.aws import instance, node
from lattice.jobs.aws.sections import sections
from lattice.jobs.aws.specs import parse
from lattice.jobs.aws.views import Part, Seen, views_of_all
from lattice.jobs.job import Code, Job, Role
from lattice.jobs.progress import judge
from tests.jobs.aws.conftest import Cloud
from tests.jobs.aws.test_node import Machine, facts_of, sizes
from tests.jobs.aws.test_specs import given
from tests.jobs.aws.test_views import ENDED, ROUND, journal

FILE = """\
folder: project
shutdown_timeout: 0
roles:
  learner: {script: learn.py, args: [--lr, 0.1], instance_type: c5.xlarge}
  actor: {command: [./act], size: '1:2', group: each, if_failed: go_on}
"""
GROUPS = ["race_actor", "race_learner", "race_rdzv"]
FAILED = {**ENDED, "status": 7, "reason": "it failed"}
TOLD = {**ENDED, "event": "job ended"}


@pytest.fixture
def race(cloud: Cloud) -> Cloud:
    """A job of one learner and two actors."""
    project = cloud.folder / "project"
    project.mkdir()
    (project / "learn.py").write_text("")
    (cloud.folder / "job.yaml").write_text(FILE)
    said = cloud.submit("race", "--file", "job.yaml", size="")
    assert said.code == 0, said.err
    return cloud


@contextlib.contextmanager
def machine(cloud: Cloud, section: str, index: int, patch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """One of the instances of a role."""
    patch.setattr(instance, "FAREWELL", 0.0)
    patch.setattr(node, "INSISTENCE", 0.0)
    name, facts = facts_of(cloud, f"race_{section}", index)
    made = Machine(cloud, cloud.folder / name, name, facts)
    for variable, value in made.variables.items():
        patch.setenv(variable, value)
    try:
        yield made
    finally:
        made.close()


def words_of(one: Machine) -> list[str]:
    assert instance.main(["prepare", str(one.facts)]) == 0
    return (one.folder / "words").read_bytes().decode().split("\0")


def test_each_role_is_a_group_and_a_kill_leaves_none(race: Cloud) -> None:
    made = race.resources()
    assert made["groups"] == GROUPS == made["leases"]
    assert (len(made["templates"]), len(made["instances"])) == (3, 4)
    types = {
        one["LaunchTemplateData"]["InstanceType"]
        for name in made["templates"]
        for one in race.client("ec2").describe_launch_template_versions(LaunchTemplateName=name)[
            "LaunchTemplateVersions"
        ]
    }
    assert types == {"m5.large", "c5.xlarge"}
    found = race.status("race")
    assert [(one["role"], one["state"]) for one in found["nodes"]] == [
        ("learner", "prepared"),
        ("actor", "prepared"),
        ("actor", "prepared"),
    ]
    killed = race.run("kill", "race")
    assert killed.code == 0, killed.err
    assert race.run("forget", "race").code == 0
    assert not any(race.resources().values()), race.resources()


def test_a_role_is_scaled_by_itself(race: Cloud) -> None:
    assert race.run("scale", "--role", "actor", "race", "1").code == 0
    assert sizes(race) == {"race_learner": 1, "race_actor": 1, "race_rdzv": 1}
    assert [one["index"] for one in race.status("race")["nodes"]] == [0, 1]
    known = json.loads((race.folder / "home" / "jobs" / "race.json").read_text())
    assert known["facts"]["nodes"] == {"learner": 1, "actor": 1}
    assert race.run("scale", "--role", "actor", "race", "3").code == 2
    assert race.run("scale", "race", "1").code == 2
    assert race.run("scale", "--role", "actor", "race", "2").code == 0
    assert len(race.status("race")["nodes"]) == 3


def test_a_node_is_told_its_role_and_its_run(race: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    submission = race.status("race")["submission"]
    with machine(race, "learner", 0, monkeypatch) as one:
        words = words_of(one)
        assert words[-4:-1] == [str(one.folder / "code" / "learn.py"), "--lr", "0.1"]
        assert {
            "LATTICE_ROLE=learner",
            "LATTICE_ENDS_JOB=always",
            "LATTICE_JOB_ROLES=learner,actor",
            f"LATTICE_JOB_ID={submission}",
            f"LATTICE_RDZV_ID={submission}.learner",
        } <= set(words)
    with machine(race, "actor", 1, monkeypatch) as one:
        words = words_of(one)
        assert words[-2] == "./act"
        assert {
            "LATTICE_ROLE=actor",
            "LATTICE_ENDS_JOB=never",
            "LATTICE_NNODES=1",
            f"LATTICE_RDZV_ID={submission}.actor-{one.name}",
        } <= set(words)


def leaves(race: Cloud, section: str, patch: pytest.MonkeyPatch, *lines: dict[str, Any]) -> dict[str, int]:
    """Let the agent of a role's first node have ended so; gives the sizes of all groups after that."""
    with machine(race, section, 0, patch) as one:
        one.write_journal(ROUND, *lines)
        one.cloud.client("s3").put_object(
            Bucket=json.loads(one.facts.read_text())["bucket"],
            Key=f"{json.loads(one.facts.read_text())['folder']}/nodes/{section}/{one.name}.jsonl",
            Body=(one.folder / "journal.jsonl").read_bytes(),
        )
        assert instance.main(["leave", str(one.facts), "0"]) == 0
    return sizes(race)


def test_a_role_that_may_fail_takes_only_its_own_instance_out(race: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    after = leaves(race, "actor", monkeypatch, FAILED)
    assert after == {"race_learner": 1, "race_actor": 1, "race_rdzv": 1}
    found = race.status("race")
    assert (found["state"], found["nodes"][1]["status"]) == ("waiting", 7)


@pytest.mark.parametrize(("section", "line"), [("learner", ENDED), ("learner", FAILED), ("actor", TOLD)])
def test_the_end_of_the_job_ends_all_groups(
    race: Cloud, section: str, line: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(leaves(race, section, monkeypatch, line).values()) == {0}
    found = race.status("race")
    assert (found["state"], found["exit_code"]) == (("failed", 7) if line is FAILED else ("succeeded", 0))
    assert not race.resources()["groups"], "the rest of it is deleted by whoever looks"


def test_every_node_moves_the_lease_of_all_groups(race: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    scaling = race.client("autoscaling")

    def leases() -> dict[str, Any]:
        found = scaling.describe_scheduled_actions()["ScheduledUpdateGroupActions"]
        return {one["AutoScalingGroupName"]: one["StartTime"] for one in found}

    before = leases()
    assert sorted(before) == GROUPS
    with machine(race, "actor", 0, monkeypatch) as one:
        assert instance.renew(node.Node(one.facts))
    after = leases()
    assert all(after[group] > before[group] for group in GROUPS)


def part(role: str, seats: int, most: int, *names: str, ends: str = "always", **journals: bytes) -> Part:
    seen = Seen(names, len(names), {name.replace("_", "-"): text for name, text in journals.items()}, ends=ends)
    return Part(seen, seats, most, role)


def test_nodes_have_the_numbers_of_their_role() -> None:
    learner = part("learner", 1, 1, "i-1", i_1=journal(1, ROUND))
    actors = part("actor", 1, 3, "i-3", ends="never", i_2=journal(2, ROUND, FAILED), i_3=journal(3, ROUND))
    judges = part("judge", 1, 1, "i-4")
    found = views_of_all([learner, actors, judges])
    assert [(view.index, view.role, view.host) for view in found] == [
        (0, "learner", "i-1"),
        (1, "actor", "i-3"),  # in the place of one that failed by itself
        (4, "judge", "i-4"),
    ]
    crowded = part("actor", 1, 1, "i-2", "i-3", i_2=journal(2, ROUND), i_3=journal(3, ROUND))
    assert [view.index for view in views_of_all([learner, crowded, judges])] == [0, 1, 2]


def test_a_latecomer_does_not_hide_the_end() -> None:
    ended = part("learner", 1, 1, "i-9", i_1=journal(1, ROUND, ENDED))
    actors = Role("actor", NodeRange(1, 1), command=("act",))
    job = Job("race", "aws", NodeRange(2, 2), Code(""), roles=(Role("learner", NodeRange(1, 1), "a.py"), actors))
    kept = views_of_all([replace(ended, most=2), part("actor", 1, 1, ends="failure", i_2=journal(1, ROUND, TOLD))])
    assert "i-1" in [view.host for view in kept]
    over = views_of_all([part("learner", 1, 1, i_1=journal(1, ROUND, ENDED))])
    assert judge(over, killed=False, job=job).state == "succeeded"


@pytest.mark.parametrize(
    ("role", "said"),
    [
        (Role("rdzv", NodeRange(1, 1), "a.py"), "no role can be called rdzv"),
        (Role("a", NodeRange(1, 1), "a.py", place_options={"instance_type": "large"}), "instance_type of role a is"),
        (Role("a", NodeRange(1, 1), "a.py", place_options={"instance_type": "g5g.xlarge"}), "no system image"),
    ],
)
def test_what_cannot_be_had_is_refused(role: Role, said: str) -> None:
    job = Job("race", "aws", NodeRange(1, 1), Code("", upload=False), roles=(role,))
    with pytest.raises(UsageError, match=said):
        sections(job, parse(given()))


def test_an_own_store_is_refused(cloud: Cloud, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(FILE + "rdzv_backend: etcd\nrdzv_endpoint: e:2379\n")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "learn.py").touch()
    said = cloud.submit("race", "--file", "job.yaml", size="")
    assert (said.code, "has no meaning with --on aws" in said.err) == (2, True), said.err
    assert not cloud.resources()["groups"]
