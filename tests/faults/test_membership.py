"""Nodes come and go as they were asked to: grow, shrink, wait, spares, ranks."""

from __future__ import annotations

import signal

from tests.agents import Cluster, alive
from tests.faults.conftest import Form
from tests.waiting import eventually, pass_time


def ranks(run: Cluster, number: int) -> dict[str, int]:
    """Give the group rank of each agent in a round."""
    return {facts["LATTICE_AGENT"]: int(facts["LATTICE_GROUP_RANK"]) for facts in run.workers(number)}


def finish(run: Cluster, code: int = 0) -> None:
    """Let all workers exit 0, and see every agent agree."""
    run.tell("exit", code)
    for agent in run.agents:
        if agent.process.poll() is None:
            assert agent.wait() == code, agent.output()


def test_the_maximum_is_sealed_at_once(form: Form) -> None:
    run = form("2", last_call=600)
    run.agent()
    run.agent()
    assert run.round_of(2) == 1
    finish(run)
    assert [agent.worlds() for agent in run.agents] == [[2], [2]]


def test_a_run_grows_to_its_maximum(form: Form) -> None:
    run = form("1:3")
    run.agent()
    first = run.round_of(1)
    run.agent()
    second = run.round_of(2, after=first)
    run.agent()
    third = run.round_of(3, after=second)
    assert {worker["LATTICE_RESTART_COUNT"] for worker in run.workers(third)} == {"0"}, "growing used the budget"
    finish(run)


def test_newcomers_together_cost_one_round(form: Form) -> None:
    run = form("1:4", last_call=2)
    run.agent()
    first = run.round_of(1)
    for _ in range(3):
        run.agent()
    assert run.round_of(4, after=first) == first + 1
    finish(run)
    assert run.agents[0].worlds() == [1, 4]


def test_a_run_shrinks_to_its_minimum_and_grows_again(form: Form) -> None:
    run = form("2:3", "--nproc_per_node", "2")
    agents = [run.agent() for _ in range(3)]
    first = run.round_of(6)
    agents[2].signal(signal.SIGTERM)
    assert agents[2].wait() == 143
    second = run.round_of(4, after=first)
    run.agent()
    run.round_of(6, after=second)
    finish(run)


def test_below_the_minimum_workers_stop_and_the_run_waits(form: Form) -> None:
    run = form("2")
    agents = [run.agent() for _ in range(2)]
    first = run.round_of(2)
    pids = run.pids(first)
    agents[1].signal(signal.SIGTERM)
    assert agents[1].wait() == 143
    eventually(lambda: agents[0].events("workers stopped"))
    assert not any(alive(pid) for pid in pids)
    eventually(lambda: agents[0].events("waiting"))
    run.agent()
    second = run.round_of(2, after=first)
    assert run.workers(second)[0]["LATTICE_RESTART_COUNT"] == "0"
    finish(run)


def test_who_waits_too_long_is_told_how_many_were_missing(form: Form) -> None:
    run = form("3", join_timeout=2)
    agents = [run.agent() for _ in range(2)]
    for agent in agents:
        assert agent.wait() == 1
        assert "2 of at least 3 nodes joined in 2s" in agent.output()
        assert "Start 1 more" in agent.output() and "LATTICE_NNODES" in agent.output()
        assert not agent.worlds()


def test_nodes_beyond_the_maximum_wait_and_step_in(form: Form) -> None:
    run = form("2", "--max_restarts", "1")
    members = [run.agent() for _ in range(2)]
    first = run.round_of(2)
    pids = run.pids(first)
    spares = [run.agent() for _ in range(2)]
    for spare in spares:
        eventually(lambda spare=spare: spare.events("spare") and "a spare" in spare.output())  # type: ignore[misc]
    assert all(alive(pid) for pid in pids), "a spare disturbed the run"
    members[1].signal(signal.SIGTERM)
    assert members[1].wait() == 143
    second = run.round_of(2, after=first)
    assert run.workers(second)[0]["LATTICE_RESTART_COUNT"] == "0"
    finish(run)
    assert members[0].worlds() == [2, 2]
    assert sorted(len(spare.worlds()) for spare in spares) == [0, 1], "a spare that was not needed ends with the run"


def test_ranks_stay_while_members_stay_and_a_newcomer_takes_the_free_one(form: Form) -> None:
    run = form("2:3", "--max_restarts", "1")
    agents = [run.agent() for _ in range(3)]
    first = run.round_of(3)
    before = ranks(run, first)
    leaving = next(agent for agent in agents if agent.events("round started")[0]["group_rank"] == 0)
    gone = next(name for name, rank in before.items() if rank == 0)
    leaving.signal(signal.SIGTERM)
    leaving.wait()
    second = run.round_of(2, after=first)
    run.agent()
    third = run.round_of(3, after=second)
    run.tell(f"exit-{third}-1", 1)
    fourth = run.round_of(3, after=third)
    assert ranks(run, fourth) == ranks(run, third)
    assert gone not in ranks(run, third)
    newcomer = next(name for name in ranks(run, third) if name not in before)
    between = ranks(run, second)
    assert {name: rank for name, rank in ranks(run, third).items() if name != newcomer} == between
    finish(run)


def test_a_node_rank_is_honoured(form: Form) -> None:
    run = form("3")
    asked = {rank: run.agent("--node_rank", str(rank)) for rank in (2, 0, 1)}
    run.round_of(3)
    for rank, agent in asked.items():
        assert agent.events("round started")[0]["group_rank"] == rank
    finish(run)


def test_nodes_with_different_numbers_of_workers(form: Form) -> None:
    run = form("2", "--framework", "pytorch")
    run.agent("--nproc_per_node", "1", "--node_rank", "0")
    run.agent("--nproc_per_node", "3", "--node_rank", "1")
    number = run.round_of(4)
    facts = run.workers(number)
    assert [worker["LATTICE_GROUP_RANK"] for worker in facts] == ["0", "1", "1", "1"]
    assert [worker["LATTICE_LOCAL_RANK"] for worker in facts] == ["0", "0", "1", "2"]
    finish(run)


def test_two_runs_side_by_side_do_not_meet(form: Form) -> None:
    one, other = form("2", run_id="side-1"), form("2", run_id="side-10")
    for run in (one, other):
        run.agent()
        run.agent()
    assert one.round_of(2) == other.round_of(2) == 1
    one.tell("exit", 3)
    for agent in one.agents:
        assert agent.wait() == 3
    pids = other.pids(1)
    assert all(alive(pid) for pid in pids)
    finish(other)


def test_nodes_that_contradict_each_other(form: Form) -> None:
    run = form("2:3")
    run.agent()
    run.agent()
    run.round_of(2)
    third = run.agent("--nnodes", "2:4")
    assert third.wait() == 2
    assert "--nnodes 2:3" in third.output() and "2:4" in third.output() and "LATTICE_RDZV_ID" in third.output()
    pass_time(0.5)
    assert run.agents[0].worlds() == [2], "the one that contradicted disturbed the run"
    finish(run)
