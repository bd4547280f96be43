"""A node that has ended takes the pods of its job away when the job is over, and not before."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lattice.core.spec import NodeRange
from lattice.jobs.aws.userdata import CodeAt
from lattice.jobs.job import EACH, Code, Job, Role
from lattice.jobs.kubernetes import node
from lattice.jobs.kubernetes.account import Account
from lattice.jobs.kubernetes.names import JobNames
from lattice.jobs.kubernetes.order import orders
from lattice.jobs.progress import ENDED, JOB_ENDED, LEFT, RUN_ENDED, RUNNING, NodeView

LOST_STORE = NodeView(1, state=ENDED, status=1, end="store lost", until=1.0)
OTHERS = {
    "runs": replace(LOST_STORE, index=0, state=RUNNING, status=None, end=""),
    "left": replace(LOST_STORE, index=0, end=LEFT),
    "failed, too": replace(LOST_STORE, index=0),
    "failed just now": replace(LOST_STORE, index=0, until=1e12),
    "has not spoken": None,
}
LOOKS = 5


class Shelves(Account):
    """The API server, as far as a node that has ended asks it."""

    def __init__(self, other: NodeView | None) -> None:
        self._other = other
        self.scaled: list[str] = []
        self.looked = 0

    def shelf(self, name: str) -> dict[str, str]:
        self.looked += 1
        assert name == "try-0"  # of itself it knows
        if self.looked == 1:
            raise OSError("timed out")
        return {} if self._other is None else {"view": json.dumps(self._other.dump())}

    def scale(self, name: str, nodes: int) -> None:
        assert nodes == 0
        self.scaled.append(name)


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., list[str]]:
    """Let a node that has ended sleep for a few looks, and give what it has scaled to nothing."""
    monkeypatch.setattr(node, "RETRY", 0.0)
    monkeypatch.setattr(node, "TURN", 0.0)

    def sleep(view: NodeView, other: NodeView | None, ends: str = "always") -> list[str]:
        account = Shelves(other)
        order = {
            "shelves": ["", "try-1"],
            "of_primary_run": ["try-0", "try-1"],  # the other one may be of another role
            "sets": ["try", "try-rdzv"],
            "keep_for": 10.0,
            "options": {"ends_job": ends},
        }
        one = node.Node(order, "try-1", "uid", account, tmp_path)
        turns = iter(range(LOOKS))

        def reap(_: int) -> None:  # the children here are not its own
            one._leaving = one._leaving or next(turns, None) is None or bool(account.scaled)

        monkeypatch.setattr(one, "_reap", reap)
        monkeypatch.setattr(node, "TICK", 0.0)
        assert one._sleep(view) == 0
        return account.scaled

    return sleep


@pytest.mark.parametrize("other", OTHERS)
def test_a_node_that_failed_by_itself_waits_for_all_others(scaled: Callable[..., list[str]], other: str) -> None:
    found = scaled(LOST_STORE, OTHERS[other])
    assert found == (["try-rdzv", "try"] if other == "failed, too" else [])


def test_the_end_of_the_run_is_the_end_of_the_job(scaled: Callable[..., list[str]]) -> None:
    ended = replace(LOST_STORE, end=RUN_ENDED)
    assert scaled(ended, OTHERS["runs"]) == ["try-rdzv", "try"]
    assert not scaled(ended, OTHERS["failed, too"], "never")
    assert scaled(ended, OTHERS["runs"], "failure")
    assert not scaled(replace(ended, status=0), OTHERS["runs"], "failure")
    assert scaled(replace(ended, end=JOB_ENDED), OTHERS["runs"], "never")


def test_who_is_of_the_primary_run_knows_all_of_it() -> None:
    roles = [
        Role("learner", NodeRange(1, 1), script="a.py"),
        Role("worker", NodeRange(2, 2), script="b.py", group=EACH),
        Role("judge", NodeRange(1, 1), script="c.py", group="learner"),
    ]
    names = JobNames(Job("try", "kubernetes", NodeRange(4, 4), Code("project"), roles=tuple(roles)), "try-1")
    for role in roles:
        told = orders(names, role, CodeAt("", "", archive=False, script=""), keep_for=1.0)
        assert told["of_primary_run"] == ["try-node-0", "try-node-3"]
