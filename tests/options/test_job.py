from __future__ import annotations

import pytest

from lattice.core.spec import JobSpec
from tests.options.machines import Stub, spec
from tests.options.test_meaning import refused

JOB = ("--job_id", "j", "--job_roles", "learner,worker", "--role", "worker", "--rdzv_id", "j-w")
EMBEDDED = (*JOB, "--rdzv_backend", "embedded")


def test_a_run_by_itself_is_no_part_of_a_job() -> None:
    found = spec("sh")
    assert found.job == JobSpec("", (), "failure")
    assert found.shared_name == found.run_id == "made-up"


def test_a_part_of_a_job() -> None:
    found = spec(*JOB, "--rdzv_endpoint", "etcd", "sh", LATTICE_ENDS_JOB="always")
    assert found.job == JobSpec("j", ("learner", "worker"), "always")
    assert (found.role, found.run_id, found.shared_name) == ("worker", "j-w", "j")
    assert {"LATTICE_JOB_ID", "LATTICE_JOB_ROLES", "LATTICE_ENDS_JOB"} <= found.strip


def test_a_job_of_one_role_needs_no_names_and_no_store() -> None:
    found = spec("--job_id", "j", "sh")
    assert (found.job.roles, found.store.backend) == (("default",), "memory")


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (("--job_roles", "a,b"), ("--job_roles (LATTICE_JOB_ROLES)", "'a,b'", "--job_id (LATTICE_JOB_ID)")),
        (("--ends_job", "never"), ("--ends_job (LATTICE_ENDS_JOB)", "'never'", "--job_id (LATTICE_JOB_ID)")),
        (("--job_id", "j", "--job_roles", "a,b", "--role", "c"), ("--role (LATTICE_ROLE)", "'c'", "'a,b'")),
        (("--job_id", "j", "--job_roles", "a,b"), ("--role (LATTICE_ROLE)", "'default'", "'a,b'")),
        (("--job_id", "j", "--role", "a_b"), ("--role (LATTICE_ROLE)", "'a_b'", "letters, digits and -")),
        (("--job_id", "j", "--role", "file"), ("--role (LATTICE_ROLE)", "'file'", "not file")),
        (("--job_id", "j", "--role", "é"), ("--role (LATTICE_ROLE)", "letters, digits and -")),
    ],
)
def test_what_does_not_go_together(words: tuple[str, ...], facts: tuple[str, ...]) -> None:
    message = refused(*words, "--rdzv_endpoint", "etcd", "sh")
    for fact in facts:
        assert fact in message


@pytest.mark.parametrize("names", ["a,A", "a-b,A-B", "a,,b", "a b", "a_b", "-", "a,file", "FILE", "a/b", "ä"])
def test_names_that_are_none(names: str) -> None:
    message = refused("--job_id", "j", "--job_roles", names, "sh")
    assert "--job_roles (LATTICE_JOB_ROLES)" in message and repr(names) in message


@pytest.mark.parametrize("words", [(), ("--standalone", "--rdzv_endpoint", "a"), ("--rdzv_backend", "embedded")])
def test_several_roles_cannot_meet_in_the_memory_of_one(words: tuple[str, ...]) -> None:
    message = refused(*JOB, *words, "sh")
    for fact in ("LATTICE_JOB_ROLES", "learner,worker", "LATTICE_RDZV_ENDPOINT", "LATTICE_RDZV_BACKEND"):
        assert fact in message


def test_one_node_of_a_job_uses_the_store_that_is_served() -> None:
    found = spec(*EMBEDDED, "--rdzv_endpoint", "ours:1", "sh", machine=Stub(hosts=["ours"]))
    assert (found.store.backend, found.store.endpoints) == ("embedded", (("ours", 1),))
    assert spec("--rdzv_backend", "embedded", "--rdzv_endpoint", "ours:1", "sh").store.backend == "memory"
    static = spec(*JOB, "--master_addr", "ours", "sh", machine=Stub(hosts=["ours"]))
    assert static.store.backend == "embedded"


def test_one_node_may_have_a_run_id_that_is_made_up_and_several_may_not() -> None:
    words = ("--job_id", "j", "--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost")
    assert spec(*words, "sh").run_id == "made-up"
    assert "LATTICE_RDZV_ID" in refused(*words, "--nnodes", "2", "sh")


@pytest.mark.parametrize(
    ("words", "serve"),
    [
        (("--rdzv_endpoint", "theirs", "--rdzv_conf", "is_host=1"), True),
        (("--rdzv_endpoint", "ours", "--rdzv_conf", "is_host=0", "--node_rank", "0"), False),
        (("--rdzv_endpoint", "ours", "--node_rank", "0"), None),
        (("--rdzv_endpoint", "localhost", "--node_rank", "0"), None),
        (("--rdzv_endpoint", "theirs"), False),
    ],
)
def test_who_serves_the_store_of_several_roles(words: tuple[str, ...], serve: bool | None) -> None:
    assert spec(*EMBEDDED, *words, "sh", machine=Stub(hosts=["ours"])).store.serve is serve


def test_rank_0_of_each_role_cannot_serve() -> None:
    message = refused(*EMBEDDED, "--rdzv_endpoint", "theirs", "--node_rank", "0", "sh")
    for fact in ("is_host", "LATTICE_RDZV_CONF", "LATTICE_NODE_RANK", "'j'"):
        assert fact in message
    alone = ("--job_id", "j", "--rdzv_backend", "embedded", "--rdzv_endpoint", "theirs", "--rdzv_id", "r")
    assert spec(*alone, "--node_rank", "0", "sh").store.serve is True


def test_who_can_guess_the_secret_is_told_by_its_name() -> None:
    assert "guesses the job id" in spec(*EMBEDDED, "--rdzv_endpoint", "theirs", "sh").notices[-1]
