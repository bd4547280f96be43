"""How nodes stand, decided from what a cluster says: values in, words out."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from lattice.jobs.kubernetes.names import JobNames
from lattice.jobs.kubernetes.views import Seen, is_over, trouble, views
from lattice.jobs.progress import ENDED, LEFT, LOST, PREPARED, RUN_ENDED, RUNNING, NodeView
from tests.jobs.kubernetes.test_schemas import ONE

NAMES = JobNames(ONE, "try-1")
BOTH = {"try": {"metadata": {"name": "try"}, "spec": {"replicas": 2}}}


def pod(name: str = "try-0", uid: str = "u", state: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    container = {"name": "node", "image": "me/train:1", "state": state or {"running": {}}, **status.pop("more", {})}
    spec = {"containers": [{"name": "node", "resources": {"limits": {"memory": "2Gi"}}}]}
    status = {"phase": "Running", "containerStatuses": [container], **status}
    return {"metadata": {"name": name, "uid": uid}, "spec": spec, "status": status}


def shelf(view: NodeView, uid: str = "u") -> dict[str, str]:
    return {"view": json.dumps(view.dump()), "pod": uid}


def first(pods: dict[str, Any], said: NodeView | None, uid: str = "u", sets: Any = BOTH, events: Any = ()) -> NodeView:
    shelves = {0: shelf(said, uid)} if said else {}
    return views(NAMES, Seen(pods, sets, shelves, events))[0]


RUNS = NodeView(0, "try-0", RUNNING, world=2, round=1)
OVER = NodeView(0, "try-0", ENDED, status=0, end=RUN_ENDED)


def test_what_a_node_says_holds_while_its_pod_is_there() -> None:
    assert first({"try-0": pod()}, RUNS) == RUNS
    starting = pod(state={"waiting": {"reason": "PodInitializing"}})
    assert first({"try-0": starting}, RUNS) == RUNS, "a kubelet says later that a container runs"


def test_what_another_pod_said_does_not_hold_for_this_one() -> None:
    assert first({"try-0": pod(uid="v")}, RUNS) == NodeView(0, "try-0", PREPARED, report="starting")


def test_a_node_whose_pod_is_gone_comes_back_if_it_is_wanted() -> None:
    assert first({}, RUNS).state == PREPARED
    none = {"try": {"metadata": {"name": "try"}, "spec": {"replicas": 0}}}
    assert first({}, RUNS, sets=none).state == LOST
    left = replace(OVER, end=LEFT)
    assert first({}, left, sets=none) == left


def test_an_end_is_an_end_whatever_becomes_of_the_pod() -> None:
    assert first({}, OVER, sets={}) == OVER
    assert first({"try-0": pod(uid="v")}, OVER) == OVER


def test_a_set_that_may_make_no_pods_says_why() -> None:
    about = {"kind": "StatefulSet", "name": "try"}
    events = [{"involvedObject": about, "type": "Warning", "reason": "FailedCreate", "message": "exceeded quota: team"}]
    assert first({}, None, events=events).report == "no pod can be made: exceeded quota: team"


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (pod(), ""),
        (pod(state={"waiting": {"reason": "ContainerCreating"}}), ""),
        (
            pod(state={"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}),
            "cannot pull the image me/train:1 (ImagePullBackOff): Back-off",
        ),
        (
            pod(more={"lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}),
            "out of memory: killed at its limit of 2Gi; raise --memory",
        ),
        (
            pod(
                state={"waiting": {"reason": "CrashLoopBackOff"}},
                more={"lastState": {"terminated": {"exitCode": 3, "message": "no"}}},
            ),
            "ends again and again with code 3 (CrashLoopBackOff): no",
        ),
        (pod(phase="Failed", reason="Evicted", message="low on disk"), "evicted: low on disk"),
        (
            pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]),
            "no room in the cluster: 0/3 nodes are available",
        ),
    ],
)
def test_trouble_in_words(made: dict[str, Any], words: str) -> None:
    assert trouble(made) == words


@pytest.mark.parametrize(
    ("state", "seconds", "over"),
    [
        ({"running": {}}, 39, False),
        ({"running": {}}, 41, True),  # 30 of grace, and 10: its node does not answer
        ({"terminated": {"exitCode": 0}}, 0, True),
        ({"waiting": {"reason": "ErrImageNeverPull"}}, 3, False),  # it may run, and the kubelet has not said so yet
        ({"waiting": {"reason": "ErrImageNeverPull"}}, 5, True),
    ],
)
def test_a_pod_that_is_to_end_is_forgotten_when_nothing_of_it_runs(
    state: dict[str, Any], seconds: float, over: bool
) -> None:
    made = pod(state=state)
    assert not is_over(made, 1e9)
    made["metadata"] |= {"deletionTimestamp": "1970-01-01T00:10:00Z", "deletionGracePeriodSeconds": 30}
    assert is_over(made, 570.0 + seconds) is over
