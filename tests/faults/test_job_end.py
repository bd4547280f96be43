"""A job ends with its primary role, or when another fails, for every agent of it, whatever it does at that moment."""

from __future__ import annotations

import signal

import pytest

from tests.faults.conftest import conf
from tests.faults.roles import Job, peering
from tests.faults.test_membership import finish
from tests.faults.test_roles import embedded_job, job, job_on_etcd
from tests.waiting import eventually, pass_time

__all__ = ["embedded_job", "job", "job_on_etcd"]


def test_when_the_primary_role_succeeds_the_others_may_save_and_exit_0(job: Job) -> None:
    learner, worker = job.role("learner", ends="always"), job.role("worker", "--nproc_per_node", "2", nnodes="2")
    learner.agent()
    for _ in range(2):
        worker.agent(entry=peering(worker, "saves"))
    learner.round_of(1)
    worker.round_of(4)
    finish(learner)
    assert [agent.wait() for agent in worker.agents] == [0, 0], worker.outputs()
    assert all((worker.said / f"saved-{rank}").exists() for rank in range(4))
    for agent in worker.agents:
        (ended,) = agent.events("job ended")
        assert (ended["status"], ended["reason"]) == (0, "the job ended: role learner succeeded")
        assert "the job ended: role learner succeeded" in agent.output()
        assert not agent.events("left")


def test_workers_that_asked_for_notice_are_told_why(job: Job) -> None:
    learner, worker = job.role("learner", ends="always"), job.role("worker", "--notice_signal", "SIGUSR1")
    learner.agent()
    worker.agent(entry=[worker.script("import time\ntime.sleep(600)")])
    learner.round_of(1)
    worker.agents[0].started()
    finish(learner)
    assert worker.agents[0].wait() == 0
    (notice,) = worker.agents[0].events("notice given")
    assert notice["reason"] == "the job ended: role learner succeeded"


def test_when_the_primary_role_fails_the_others_exit_with_its_status(job: Job) -> None:
    learner, worker = job.role("learner", ends="always"), job.role("worker")
    learner.agent()
    worker.agent()
    learner.round_of(1)
    worker.round_of(1)
    learner.tell("exit", 5)
    assert learner.agents[0].wait() == 5
    assert worker.agents[0].wait() == 5
    (ended,) = worker.agents[0].events("job ended")
    assert ended["status"] == 5
    assert "role learner failed: rank 0" in ended["reason"] and "exit code 5" in ended["reason"]


def test_when_another_role_fails_the_job_has_failed(job: Job) -> None:
    learner, worker = job.role("learner", ends="always"), job.role("worker", nnodes="2", ends="failure")
    learner.agent()
    for _ in range(2):
        worker.agent()
    learner.round_of(1)
    worker.round_of(2)
    worker.tell("exit-1-1", 6)
    assert [agent.wait() for agent in worker.agents] == [6, 6]
    assert learner.agents[0].wait() == 6
    assert "the job ended: role worker failed: rank 1" in learner.agents[0].output()
    assert all(agent.events("run ended") and not agent.events("job ended") for agent in worker.agents)


@pytest.mark.parametrize(("ends", "code"), [("never", 6), ("failure", 0), ("never", 0)])
def test_another_role_that_ends_and_does_not_end_the_job(job: Job, ends: str, code: int) -> None:
    learner, worker = job.role("learner", ends="always"), job.role("worker", ends=ends)
    learner.agent()
    worker.agent()
    learner.round_of(1)
    worker.round_of(1)
    worker.tell("exit", code)
    assert worker.agents[0].wait() == code
    pass_time(1)
    assert learner.agents[0].process.poll() is None
    finish(learner)
    assert not learner.agents[0].events("job ended")


def test_a_failure_that_is_only_the_echo_of_the_end(job: Job) -> None:
    learner = job.role("learner", "--nproc_per_node", "2", ends="always")
    worker = job.role("worker", nnodes="2", lease_ttl=30)
    learner.agent(entry=peering(learner, "serves"))
    for _ in range(2):
        worker.agent(entry=peering(worker, "asks"))
    eventually(lambda: all((worker.said / f"heard-{rank}").exists() for rank in range(2)), within=60)
    (learner.said / "exit-0").touch()  # those who asked it fail, and the learner's run has not ended
    eventually(lambda: all(agent.events("worker exited") for agent in worker.agents))
    pass_time(1)
    (learner.said / "exit-1").touch()
    assert learner.agents[0].wait() == 0, learner.outputs()
    assert [agent.wait() for agent in worker.agents] == [0, 0], worker.outputs()
    assert all(agent.events("job ended") for agent in worker.agents)


def test_who_waits_for_more_nodes_hears_of_the_end(job: Job) -> None:
    learner, worker = job.role("learner", ends="always"), job.role("worker", nnodes="2")
    learner.agent()
    learner.round_of(1)
    waiting = worker.agent()
    eventually(lambda: waiting.events("waiting"))
    finish(learner)
    assert waiting.wait() == 0
    assert waiting.events("job ended") and not waiting.events("workers started")


def test_spares_of_both_roles_hear_of_the_end(job: Job) -> None:
    learner, worker = job.role("learner", ends="always"), job.role("worker")
    spares = []
    for run in (learner, worker):
        run.agent()
        run.round_of(1)
        spares.append(run.agent("--rdzv_conf", "is_host=0"))
        eventually(lambda: spares[-1].events("spare"))
    finish(learner)
    assert [agent.wait() for agent in worker.agents] == [0, 0]
    assert spares[0].events("run ended"), "it has its own run's outcome to read"
    assert spares[1].events("job ended")


def test_who_comes_when_the_job_has_ended(job_on_etcd: Job) -> None:
    learner, worker = job_on_etcd.role("learner", ends="always"), job_on_etcd.role("worker")
    learner.agent(entry=["true"])
    assert learner.agents[0].wait() == 0
    late = worker.agent()
    assert late.wait() == 0, late.output()
    assert late.events("job ended") and not late.events("workers started")


def test_who_comes_while_the_store_waits_for_somebody_who_has_not_heard(embedded_job: Job) -> None:
    learner, worker = embedded_job.role("learner", ends="always"), embedded_job.role("worker", lease_ttl=60)
    learner.agent()
    hung = worker.agent()
    learner.round_of(1)
    worker.round_of(1)
    hung.signal(signal.SIGSTOP)
    learner.tell("exit", 0)
    eventually(lambda: learner.agents[0].events("run ended"))
    late = worker.agent("--rdzv_id", "of-its-own")
    assert late.wait() == 0, late.output()
    assert late.events("job ended") and not late.events("workers started")
    assert learner.agents[0].process.poll() is None
    hung.signal(signal.SIGCONT)
    assert hung.wait() == 0
    assert learner.agents[0].wait() == 0


def test_who_comes_late_to_the_role_that_ended_the_job(job_on_etcd: Job) -> None:
    learner = job_on_etcd.role("learner", ends="always", outcome_ttl=600)
    learner.agent(entry=["sh", "-c", "exit 4"])
    assert learner.agents[0].wait() == 4
    late = learner.agent("--rdzv_id", "another")
    assert late.wait() == 4
    assert late.events("job ended") and not late.events("workers started")


def test_the_store_is_served_on_for_the_roles_that_are_left(embedded_job: Job) -> None:
    job = embedded_job
    learner, worker = job.role("learner", ends="never"), job.role("worker", ends="always", store_grace=1)
    learner.agent()
    learner.round_of(1)
    worker.agent()
    worker.round_of(1)
    learner.tell("exit")
    eventually(lambda: "serving the store on" in learner.agents[0].output())
    pass_time(4)
    assert learner.agents[0].process.poll() is None
    worker.tell("exit")
    assert worker.agents[0].wait() == 0, worker.outputs()
    assert learner.agents[0].wait() == 0


def test_a_store_that_is_served_on_can_be_stopped(embedded_job: Job) -> None:
    job = embedded_job
    learner, worker = job.role("learner", ends="never"), job.role("worker", store_grace=1)
    learner.agent()
    learner.round_of(1)
    worker.agent()
    worker.round_of(1)
    learner.tell("exit")
    eventually(lambda: "serving the store on" in learner.agents[0].output())
    learner.agents[0].signal(signal.SIGTERM)
    assert learner.agents[0].wait() == 0
    assert worker.agents[0].wait() == 1, "its store is gone"


def test_a_served_store_does_not_wait_for_workers_that_still_save(embedded_job: Job) -> None:
    learner, worker = embedded_job.role("learner", ends="always"), embedded_job.role("worker", store_grace=0)
    learner.agent()
    slow = worker.agent(entry=peering(worker, "saves"), environ={"SAVING": "6"})
    learner.round_of(1)
    worker.round_of(1)
    finish(learner)
    assert slow.process.poll() is None and not (worker.said / "saved-0").exists()
    assert slow.wait() == 0, slow.output()
    assert (worker.said / "saved-0").exists()


def test_all_nodes_of_the_primary_role_tell_how_their_run_ended(job: Job) -> None:
    learner, worker = job.role("learner", nnodes="2", ends="always"), job.role("worker")
    learner.agent()
    learner.agent("--rdzv_conf", f"{conf()},is_host=0")
    worker.agent()
    learner.round_of(2)
    worker.round_of(1)
    finish(learner, 3)
    assert worker.agents[0].wait() == 3
    for agent in learner.agents:
        assert agent.events("run ended") and not agent.events("job ended"), agent.output()
