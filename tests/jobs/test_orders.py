"""What each node of a job is told, with roles and without."""

from __future__ import annotations

import pytest

from lattice.core.spec import NodeRange
from lattice.jobs.job import EACH, Code, Job, Role
from lattice.jobs.orders import CERTIFICATE, IDENTITY, PASSWORD, Meeting, order, program_words

MEETING = Meeting("h:1", "secret", "certificate", "identity")
LEARNER = Role("learner", NodeRange(2, 2), script="learn.py", arguments=("--lr", "1"), environment=(("A", "b"),))
WORKER = Role("worker", NodeRange(1, 2), command=("./act", "x"), arguments=("y",), group=EACH, if_failed="go_on")
JUDGE = Role("judge", NodeRange(1, 1), script="judge.py", run_options=(("max_restarts", "2"), ("rdzv_conf", "a=1")))
JOB = Job("race", "local", NodeRange(4, 5), Code("project"), roles=(LEARNER, WORKER, JUDGE))


def told(index: int, job: Job = JOB, meeting: Meeting = MEETING) -> dict[str, str]:
    words = order(job, "race-1", index, meeting)["argv"]
    return {name[2:]: text for name, text in zip(words[::2], words[1::2], strict=False) if name.startswith("--")}


def test_each_node_takes_part_in_the_run_of_its_group() -> None:
    found = [tuple(told(i)[name] for name in ("role", "rdzv_id", "nnodes", "node_rank", "ends_job")) for i in range(5)]
    assert found == [
        ("learner", "race-1.learner", "2", "0", "always"),
        ("learner", "race-1.learner", "2", "1", "always"),
        ("worker", "race-1.worker-0", "1", "0", "never"),
        ("worker", "race-1.worker-1", "1", "0", "never"),
        ("judge", "race-1.judge", "1", "0", "failure"),
    ]
    assert {(told(i)["job_id"], told(i)["job_roles"]) for i in range(5)} == {("race-1", "learner,worker,judge")}


def test_node_0_serves_the_store_of_the_whole_job_and_nobody_else() -> None:
    assert all(told(i)["rdzv_endpoint"] == "h:1" and told(i)["rdzv_backend"] == "embedded" for i in range(5))
    assert told(0)["rdzv_conf"] == "cacert=../store.crt,cert=../store.pem,key=../store.pem,is_host=1"
    assert told(2)["rdzv_conf"] == "cacert=../store.crt,is_host=0"
    assert told(4)["rdzv_conf"] == "a=1,cacert=../store.crt,is_host=0"
    files = [sorted(order(JOB, "race-1", i, MEETING)["files"]) for i in range(5)]
    assert files == [[CERTIFICATE, IDENTITY], *[[CERTIFICATE]] * 4]
    assert told(1, meeting=Meeting("h:1", "secret"))["rdzv_conf"] == "is_host=0", "without TLS, too"


def test_each_node_gets_the_program_the_variables_and_the_options_of_its_role() -> None:
    orders = [order(JOB, "race-1", i, MEETING) for i in range(5)]
    assert orders[0]["argv"][-3:] == ["learn.py", "--lr", "1"]
    assert orders[2]["argv"][-3:] == ["./act", "x", "y"]
    assert orders[0]["environment"] == {"A": "b", PASSWORD: "secret"}
    assert orders[2]["environment"] == {PASSWORD: "secret"}
    assert (told(4)["max_restarts"], "max_restarts" in told(0)) == ("2", False)


def test_one_node_with_a_role_can_be_found_by_those_to_come() -> None:
    alone = Job("race", "local", NodeRange(1, 1), Code("project"), roles=(Role("learner", NodeRange(1, 1), "a.py"),))
    assert (told(0, alone)["rdzv_backend"], told(0, alone)["job_roles"]) == ("embedded", "learner")


def test_roles_meet_at_the_users_own_store() -> None:
    options = (("rdzv_backend", "etcd"), ("rdzv_endpoint", "e:2379"))
    roles = (Role("learner", NodeRange(1, 1), "a.py", run_options=options),)
    found = order(Job("race", "local", NodeRange(1, 1), Code("project"), roles=roles), "race-1", 0, MEETING)
    assert (found["environment"], found["files"]) == ({}, {})
    words = " ".join(found["argv"])
    assert "--rdzv_backend etcd --rdzv_endpoint e:2379" in words and "rdzv_conf" not in words
    assert "--job_id race-1" in words


@pytest.mark.parametrize(
    ("source", "upload", "script", "words"),
    [
        ("project", True, "a.py", "a.py"),
        ("/there/", False, "a.py", "/there/a.py"),
        ("", False, "/there/a.py", "/there/a.py"),
    ],
)
def test_a_script_is_named_as_it_is_found_on_the_node(source: str, upload: bool, script: str, words: str) -> None:
    job = Job("race", "local", NodeRange(1, 1), Code(source, "", upload))
    assert program_words(job, Role("learner", NodeRange(1, 1), script)) == (words,)
