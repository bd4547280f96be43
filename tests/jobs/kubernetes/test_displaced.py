"""Nodes that have to go, because their machine is emptied or somebody more important comes: workers save, and go on."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from lattice.jobs.kubernetes.quantities import amount
from tests.jobs import programs
from tests.jobs.kubernetes.pods import ELASTIC, ELASTIC_GRACE, STARTED, KubernetesPlace, together
from tests.lab.pods import template
from tests.waiting import eventually

SAVE_SLOWLY = programs.SAVE.replace('print("saved"', 'time.sleep(1)\n    print("saved"')


@contextlib.contextmanager
def followed(place: KubernetesPlace, name: str) -> Iterator[Callable[[], str]]:
    """Follow the logs of a job for the length of a block: those of a pod go with it."""
    file = place.folder / "followed"
    with file.open("wb") as out:
        process = subprocess.Popen(
            place.argv("logs", "-f", name), env=place.environ(), cwd=place.folder, stdout=out, stderr=out
        )
    try:
        yield file.read_text
    finally:
        process.kill()
        process.wait()


def running(place: KubernetesPlace, name: str) -> int:
    """Wait until an elastic job has two nodes; gives the number of its round."""
    eventually(lambda: together(place, name, 2), within=STARTED)
    found: int = place.status(name)["nodes"][0]["round"]
    return found


def leaving(place: KubernetesPlace, names: tuple[str, ...]) -> dict[str, Any]:
    """Give the pod that was told to go."""
    pods = [place.api.get("pods", place.namespace, name) for name in names]
    return next((pod for pod in pods if pod and pod["metadata"].get("deletionTimestamp")), {})


def saved(heard: str, pod: str) -> bool:
    return any(line.endswith(" saved") and pod in line for line in heard.splitlines())


def test_an_evicted_node_saves_and_another_takes_its_seat(place: KubernetesPlace) -> None:
    (place.folder / "save.py").write_text(SAVE_SLOWLY)
    assert place.submit("moved", *ELASTIC, "save.py").code == 0
    before = running(place, "moved")
    with followed(place, "moved") as heard:
        eventually(lambda: heard().count("ready") >= 2, within=60)
        # As kubectl drain does; a server before 1.22 knows this version only.
        eviction = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "moved-1"}}
        place.api.call("CoreV1Api", "create_namespaced_pod_eviction", "moved-1", place.namespace, eviction)
        assert leaving(place, ("moved-1",))["metadata"]["deletionGracePeriodSeconds"] == ELASTIC_GRACE
        eventually(lambda: saved(heard(), "moved-1"), within=60)
    eventually(
        lambda: together(place, "moved", 2) and place.status("moved")["nodes"][0]["round"] > before, within=STARTED
    )
    assert place.status("moved")["restarts"] == 0


@contextlib.contextmanager
def important(place: KubernetesPlace, cpu: str) -> Iterator[None]:
    """Have a pod of a higher priority that wants so much for the length of a block."""
    rank = {"metadata": {"name": place.namespace}, "value": 1000}
    place.api.call("SchedulingV1Api", "create_priority_class", rank)
    pod = template("exec sleep 1000", priorityClassName=place.namespace)
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    try:
        place.api.create("pods", place.namespace, {**pod, "metadata": {"name": "important"}})
        yield
    finally:
        with contextlib.suppress(Exception):
            place.api.call("CoreV1Api", "delete_namespaced_pod", "important", place.namespace)
        place.api.call("SchedulingV1Api", "delete_priority_class", place.namespace)


def test_a_node_makes_way_for_one_of_higher_priority_and_comes_back_after_it(place: KubernetesPlace) -> None:
    place.cluster.own()
    (place.folder / "save.py").write_text(SAVE_SLOWLY)
    node = place.api.call("CoreV1Api", "read_node", "node1")
    third = f"{int(amount(node['status']['allocatable']['cpu']) * 350)}m"  # two fit, three do not
    assert place.submit("yields", "--cpu", third, *ELASTIC, "save.py").code == 0
    before = running(place, "yields")
    names = ("yields-0", "yields-1")
    with followed(place, "yields") as heard:
        eventually(lambda: heard().count("ready") >= 2, within=60)
        with important(place, third):
            gone = eventually(lambda: leaving(place, names), within=60)["metadata"]
            assert gone["deletionGracePeriodSeconds"] == ELASTIC_GRACE
            eventually(lambda: saved(heard(), gone["name"]), within=60)
            eventually(lambda: place.api.phase(place.namespace, "important") == "Running", within=STARTED)
            index = names.index(gone["name"])

            def alone() -> bool:
                nodes = place.status("yields")["nodes"]
                room = "no room in the cluster" in nodes[index]["report"]
                return room and (nodes[1 - index]["state"], nodes[1 - index]["world"]) == ("running", 1)

            eventually(alone, within=STARTED)
    eventually(
        lambda: together(place, "yields", 2) and place.status("yields")["nodes"][0]["round"] > before, within=STARTED
    )
    assert place.status("yields")["restarts"] == 0
