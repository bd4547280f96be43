"""The roles of a job find each other, and follow each other's coming and going."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lattice.core.keyvalue import MARKER
from tests.agents import alive
from tests.etcd_server import EtcdServer, free_ports
from tests.faults.conftest import LEASE
from tests.faults.roles import Job, first, job_on, listed, on_etcd, peering, places
from tests.faults.test_membership import finish
from tests.waiting import eventually, pass_time


@pytest.fixture
def job_on_etcd(tmp_path: Path, etcd: EtcdServer) -> Iterator[Job]:
    """A job on the shared etcd."""
    with job_on(tmp_path / "etcd", *on_etcd(etcd)) as made:
        yield made


@pytest.fixture
def embedded_job(tmp_path: Path) -> Iterator[Job]:
    """A job on a store that the learner serves."""
    with job_on(tmp_path / "embedded", "embedded", f"127.0.0.1:{free_ports(1)[0]}") as made:
        yield made


@pytest.fixture(params=["etcd", "embedded"])
def job(request: pytest.FixtureRequest, job_on_etcd: Job, embedded_job: Job) -> Job:
    """A job on either."""
    return job_on_etcd if request.param == "etcd" else embedded_job


@pytest.fixture
def fragile_job(tmp_path: Path, own_etcd: EtcdServer) -> Iterator[Job]:
    """A job on an etcd of its own."""
    with job_on(tmp_path, *on_etcd(own_etcd)) as made:
        yield made


def test_two_roles_talk_to_each_other(job: Job) -> None:
    learner, worker = job.role("learner", ends="always"), job.role("worker", "--nproc_per_node", "2")
    worker.agent(entry=peering(worker, "asks"))
    learner.agent(entry=peering(learner, "serves"))
    for rank in range(2):
        heard = worker.said / f"heard-{rank}"
        eventually(heard.exists, within=60)
        assert heard.read_text() == "hello from 0"


def test_variables_and_file_name_every_role(job: Job) -> None:
    learner, worker = job.role("learner", "--nproc_per_node", "2", ends="always"), job.role("worker")
    learner.agent()
    learner.round_of(2)
    assert first(learner)["LATTICE_PEERS_WORKER"] == "", "nobody yet"
    eventually(lambda: listed(learner, "learner") == places(learner))
    assert listed(learner, "worker") == []
    worker.agent()
    worker.round_of(1)
    said = first(worker)
    assert said["LATTICE_PEERS_LEARNER"].split(",") == places(learner) == listed(worker, "learner")
    assert said["LATTICE_PEERS_WORKER"].split(",") == places(worker)
    assert not [name for name in said if name in ("LATTICE_JOB_ID", "LATTICE_JOB_ROLES", "LATTICE_ENDS_JOB")]
    eventually(lambda: listed(learner, "worker") == places(worker))
    finish(learner)
    assert worker.agents[0].wait() == 0, worker.outputs()
    assert not any(Path(one["LATTICE_PEERS_FILE"]).parent.exists() for one in (said, first(learner)))


def test_nodes_that_come_and_go_are_followed_in_the_order_of_their_ranks(job: Job) -> None:
    learner, worker = job.role("learner", ends="always"), job.role("worker", nnodes="1:3")
    learner.agent()
    learner.round_of(1)
    worker.agent()
    one = worker.round_of(1)
    eventually(lambda: listed(learner, "worker") == places(worker))
    worker.agent()
    worker.agent()
    worker.round_of(3, after=one)
    eventually(lambda: len(listed(learner, "worker")) == 3 and listed(learner, "worker") == places(worker))
    before = places(worker)
    worker.agents[0].kill()
    eventually(lambda: len(listed(learner, "worker")) == 2)
    assert set(listed(learner, "worker")) < set(before)
    finish(learner)
    assert [agent.wait() for agent in worker.agents[1:]] == [0, 0]


def test_who_leaves_is_gone_at_once_and_who_is_killed_after_its_lease(job: Job) -> None:
    long, short = 90, 3
    learner, worker = job.role("learner", ends="always"), job.role("worker", nnodes="1:2", lease_ttl=long)
    learner.agent()
    learner.round_of(1)
    leaving = worker.agent()
    worker.round_of(1)
    staying = worker.agent("--rdzv_conf", f"lease_ttl={short},last_call=0.1,is_host=0")
    worker.round_of(2, after=1)
    eventually(lambda: len(listed(learner, "worker")) == 2)
    leaving.signal(signal.SIGTERM)
    eventually(lambda: len(listed(learner, "worker")) == 1)
    assert leaving.wait() == 143
    staying.kill()
    assert len(listed(learner, "worker")) == 1, "only its lease can tell"
    eventually(lambda: listed(learner, "worker") == [])
    finish(learner)


def test_a_restarted_worker_keeps_its_port(job: Job) -> None:
    learner, worker = (
        job.role("learner", ends="always"),
        job.role("worker", "--nproc_per_node", "2", "--max_restarts=1"),
    )
    learner.agent()
    learner.round_of(1)
    worker.agent()
    one = worker.round_of(2)
    before = places(worker)
    eventually(lambda: listed(learner, "worker") == before)
    worker.tell(f"exit-{one}-1", 5)
    worker.round_of(2, after=one)
    assert places(worker) == before == listed(learner, "worker")
    finish(learner)


def test_a_spare_is_not_listed_before_it_steps_in(job: Job) -> None:
    learner, worker = job.role("learner", ends="always"), job.role("worker")
    learner.agent()
    learner.round_of(1)
    working = worker.agent()
    one = worker.round_of(1)
    before = places(worker)
    spare = worker.agent()
    eventually(lambda: spare.events("spare"))
    eventually(lambda: listed(learner, "worker") == before)
    working.kill()
    worker.round_of(1, after=one)
    eventually(lambda: listed(learner, "worker") == places(worker) != before)
    finish(learner)
    assert spare.wait() == 0


def test_a_job_may_have_the_name_of_its_run(job: Job) -> None:
    learner, worker = job.role("learner", "--rdzv_id", job.id, ends="always"), job.role("worker")
    learner.agent()
    worker.agent()
    learner.round_of(1)
    worker.round_of(1)
    eventually(lambda: listed(learner, "worker") == places(worker))
    finish(learner)
    assert worker.agents[0].wait() == 0
    assert learner.agents[0].worlds() == worker.agents[0].worlds() == [1]


@pytest.mark.parametrize("wipe", [False, True])
def test_nobody_disappears_while_etcd_is_away(fragile_job: Job, own_etcd: EtcdServer, wipe: bool) -> None:
    learner, worker = fragile_job.role("learner", ends="always"), fragile_job.role("worker", nnodes="2")
    for run, nodes in ((learner, 1), (worker, 2)):
        for _ in range(nodes):
            run.agent()
        run.round_of(nodes)
    eventually(lambda: listed(learner, "worker") == places(worker) and listed(worker, "learner") == places(learner))
    own_etcd.kill()
    pass_time(1.5 * LEASE)
    own_etcd.restart(wipe=wipe)

    def back() -> bool:
        assert listed(learner, "worker") == places(worker)
        keys = own_etcd.etcdctl("get", "--prefix", "--keys-only", f"/lattice/{fragile_job.id}/roles/").split()
        return len(keys) == 3

    eventually(back)
    pass_time(2 * LEASE)  # long enough for anyone to be missed
    assert listed(learner, "worker") == places(worker) and listed(worker, "learner") == places(learner)
    assert all(alive(pid) for pid in worker.pids(1))
    finish(learner)
    assert [agent.wait() for agent in worker.agents] == [0, 0]


def test_who_dies_while_etcd_is_away_is_missed_afterwards(fragile_job: Job, own_etcd: EtcdServer) -> None:
    learner, worker = fragile_job.role("learner", ends="always"), fragile_job.role("worker")
    learner.agent()
    worker.agent()
    learner.round_of(1)
    worker.round_of(1)
    eventually(lambda: listed(learner, "worker") == places(worker))
    own_etcd.kill()
    worker.agents[0].kill()
    own_etcd.restart(wipe=True)
    eventually(lambda: listed(learner, "worker") == [])
    assert listed(learner, "learner") == places(learner)
    finish(learner)


def test_what_somebody_else_wrote_is_not_believed(job_on_etcd: Job, etcd: EtcdServer) -> None:
    job = job_on_etcd
    for key in ("roles/worker/x", "roles/x", "roles/", "roles/other/x", "end"):
        for value in ("not json", '{"v":1}', '{"v":1,"role":"worker","host":"h","address":"a","node":"x","ports":[1]}'):
            etcd.etcdctl("put", f"/lattice/{job.id}/{key}", value)
    learner, worker = job.role("learner", ends="never"), job.role("worker")
    learner.agent()
    worker.agent()
    learner.round_of(1)
    worker.round_of(1)
    eventually(lambda: listed(learner, "worker") == places(worker))
    finish(learner)
    finish(worker)


def test_a_directory_that_is_refused_costs_five_seconds_at_the_start(tmp_path: Path, own_etcd: EtcdServer) -> None:
    own_etcd.enable_auth(("narrow", "narrow", "/lattice/mine/"))
    own_etcd.etcdctl("role", "grant-permission", "narrow", "--prefix=true", "readwrite", "/lattice/%c10d/mine/")
    own_etcd.etcdctl("role", "grant-permission", "narrow", "readwrite", MARKER)
    with job_on(tmp_path, *on_etcd(own_etcd)) as job:
        learner = job.role("learner", "--rdzv_id", "mine", user="narrow", password="narrow")
        agent = learner.agent()
        learner.round_of(1)
        (sealed,), (started,) = agent.events("round started"), agent.events("workers started")
        assert 4.9 < started["at"] - sealed["at"] < 20
        assert agent.output().count(f"the directory of job '{job.id}'") == 1
        assert listed(learner, "learner") == [] and first(learner)["LATTICE_PEERS_LEARNER"] == places(learner)[0]
        finish(learner)
