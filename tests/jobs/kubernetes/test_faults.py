"""What goes wrong in a cluster: the job goes on, or says in words what it waits for."""

from __future__ import annotations

import json

import pytest

from tests.jobs import programs
from tests.jobs.kubernetes.pods import ELASTIC, STARTED, KubernetesPlace, together
from tests.waiting import eventually


def test_a_node_comes_back_by_itself_after_its_container_or_its_pod_is_gone(place: KubernetesPlace) -> None:
    (place.folder / "save.py").write_text(programs.SAVE)
    assert place.submit("hurt", *ELASTIC, "save.py").code == 0
    eventually(lambda: together(place, "hurt", 2), within=STARTED)
    first = place.status("hurt")["nodes"][0]["round"]
    place.kill_agent(place.status("hurt")["nodes"][1])
    eventually(lambda: together(place, "hurt", 2) and place.status("hurt")["nodes"][0]["round"] > first, within=STARTED)
    before = place.status("hurt")["nodes"][0]["round"]
    place.api.call("CoreV1Api", "delete_namespaced_pod", "hurt-1", place.namespace)
    eventually(
        lambda: together(place, "hurt", 2) and place.status("hurt")["nodes"][0]["round"] > before, within=STARTED
    )
    assert place.status("hurt")["restarts"] == 0


def test_the_job_goes_on_when_its_etcd_is_gone_for_a_moment(place: KubernetesPlace) -> None:
    (place.folder / "save.py").write_text(programs.SAVE)
    assert place.submit("met", *ELASTIC, "save.py").code == 0
    eventually(lambda: together(place, "met", 2), within=STARTED)
    place.api.call("CoreV1Api", "delete_namespaced_pod", "met-rdzv-0", place.namespace, grace_period_seconds=0)
    eventually(lambda: place.api.phase(place.namespace, "met-rdzv-0") == "Running", within=STARTED)
    scaled = place.run("scale", "met", "1")
    assert scaled.code == 0, scaled.err
    eventually(
        lambda: [n["world"] for n in place.status("met")["nodes"] if n["state"] == "running"] == [1], within=STARTED
    )
    # A look at the job forgets what only waits for its kubelet.
    eventually(lambda: place.status("met") and not place.api.get("pods", place.namespace, "met-1"), within=STARTED)
    lines = [line for line in place.run("logs", "met").out.splitlines() if line.startswith("[node 1] ")]
    assert any(line.endswith("met-1] saved") for line in lines), "the end of a log outlives its pod"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--image", "nowhere.invalid/none:1"), "cannot pull the image nowhere.invalid/none:1 (ErrImageNeverPull)"),
        (("--cpu", "4000"), "no room in the cluster: 0/"),
    ],
)
def test_what_a_job_waits_for_is_told_in_words(place: KubernetesPlace, words: tuple[str, ...], told: str) -> None:
    (place.folder / "tell.py").write_text(programs.TELL)
    assert place.submit("waits", *words, "tell.py", size=1).code == 0
    eventually(lambda: told in place.status("waits")["nodes"][0]["report"], within=60)
    waited = place.run("wait", "--timeout", "8", "waits")
    assert (waited.code, told in waited.err) == (124, True), waited.err
    assert place.run("kill", "waits").code == 0
    assert not place.left()


def test_a_container_out_of_memory_says_so_with_its_limit(place: KubernetesPlace) -> None:
    (place.folder / "tell.py").write_text(programs.TELL)
    assert place.submit("big", "--memory", "12Mi", "tell.py", size=1).code == 0  # less than Python itself needs
    told = "out of memory: killed at its limit of 12Mi; raise --memory"
    eventually(lambda: told in place.status("big")["nodes"][0]["report"], within=120)


def test_a_worker_out_of_memory_fails_the_job_with_its_signal(place: KubernetesPlace) -> None:
    # The kernel kills one process of the container, the largest: the agent lives, and says what it saw.
    (place.folder / "big.py").write_text("x = b'x' * (1 << 30)\n")
    assert place.submit("big", "--memory", "160Mi", "big.py", size=1).code == 0
    assert place.run("wait", "big").code == 137
    assert "SIGKILL" in place.status("big")["last_failure"]


def test_a_node_of_a_machine_that_lost_its_power_sits_elsewhere(place: KubernetesPlace) -> None:
    (place.folder / "save.py").write_text(programs.SAVE)
    # The job is there before the machine, so that only one of its nodes, and not its etcd, gets there.
    assert place.submit("power", *ELASTIC, "save.py").code == 0
    eventually(lambda: together(place, "power", 2), within=STARTED)
    with place.cluster.node() as machine:
        assert place.run("scale", "power", "1").code == 0
        eventually(lambda: "power-1" not in place.running(), within=STARTED)
        place.api.call("CoreV1Api", "patch_node", "node1", {"spec": {"unschedulable": True}})
        try:
            assert place.run("scale", "power", "2").code == 0
            eventually(lambda: together(place, "power", 2), within=STARTED)
        finally:
            place.api.call("CoreV1Api", "patch_node", "node1", {"spec": {"unschedulable": None}})
        lost = place.api.get("pods", place.namespace, "power-1")
        assert lost is not None
        assert lost["spec"]["nodeName"] == machine
        place.cluster.power_off()

        def replaced() -> bool:
            found = place.api.get("pods", place.namespace, "power-1")
            elsewhere = found is not None and found["spec"].get("nodeName") == "node1"
            return together(place, "power", 2) and elsewhere

        eventually(replaced, within=240)


def test_nothing_is_left_after_a_kill_but_how_it_ended(place: KubernetesPlace) -> None:
    (place.folder / "save.py").write_text(programs.SAVE)
    assert place.submit("gone", "save.py").code == 0
    eventually(lambda: place.run("logs", "gone").out.count("ready") >= 2, within=STARTED)
    kinds = {one.split("/")[0] for one in place.left()}
    assert kinds == {
        *("pods", "services", "configmaps", "secrets", "serviceaccounts", "statefulsets", "roles", "rolebindings"),
        "networkpolicies",
    }
    assert place.run("kill", "gone").code == 0
    assert place.left() == []
    assert place.run("logs", "gone").out.count("saved") == 2
    assert place.run("forget", "gone").code == 0
    assert not list((place.home / "kept").iterdir())


def test_pods_go_by_themselves_and_the_result_stays(place: KubernetesPlace) -> None:
    (place.folder / "tell.py").write_text(programs.TELL)
    assert place.submit("short", "tell.py").code == 0
    # Nobody of us looks meanwhile.
    eventually(lambda: any(one.startswith("pods/") for one in place.left()), within=60)
    eventually(lambda: not place.running(), within=STARTED)
    found = place.status("short")
    assert (found["state"], [node["status"] for node in found["nodes"]]) == ("succeeded", [0, 0])
    assert json.loads(place.run("logs", "--rank", "1", "short").out) == [1, 2, []]
    eventually(lambda: {one.split("/")[0] for one in place.left()} == {"configmaps"}, within=60)
