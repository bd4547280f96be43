"""What is wrong is told before anything is made, all of it, with the next step."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from lattice.jobs.kubernetes import preflight
from lattice.jobs.kubernetes.quantities import amount
from tests.jobs import programs
from tests.jobs.kubernetes.pods import KubernetesPlace
from tests.jobs.kubernetes.test_schemas import ONE, ROLES
from tests.registry_server import USER, put_image, registry_server
from tests.waiting import eventually


def machine(gpus: str = "", **labels: str) -> dict[str, Any]:
    allocatable = {"nvidia.com/gpu": gpus} if gpus else {}
    return {"metadata": {"labels": labels}, "status": {"allocatable": allocatable}}


def test_amounts() -> None:
    assert [amount(text) for text in ("", "2", "500m", "1Ki", "2G", "1.5")] == [0, 2, 0.5, 1024, 2e9, 1.5]


def test_gpus_are_looked_for_on_the_nodes() -> None:
    assert preflight.no_gpus([machine(), machine("8")], 8) == ""
    assert "largest of the cluster has 4" in preflight.no_gpus([machine("4")], 8)
    none = preflight.no_gpus([machine()], 1)
    assert "lattice install --on kubernetes --gpu" in none
    assert "service quotas" not in none
    of_eks = preflight.no_gpus([machine(**{"eks.amazonaws.com/nodegroup": "workers"})], 1)
    assert "service quotas" in of_eks


def test_images_that_a_node_has_need_not_be_pulled() -> None:
    names = {"status": {"images": [{"names": ["a.example/b:1", "a.example/b@sha256:ab"]}, {"names": None}]}}
    again = {"status": {"images": [{"names": ["a.example/b:latest"]}]}}
    assert preflight.held([names, again, {"status": {}}]) == {"a.example/b:1", "a.example/b@sha256:ab"}


def test_a_quota_is_compared_with_all_that_the_job_wants() -> None:
    status = {
        "hard": {"pods": "10", "requests.cpu": "100", "services": "5"},
        "used": {"pods": "2", "requests.cpu": "1"},
    }
    quota = {"metadata": {"name": "team"}, "status": status}
    said = preflight.lacking(quota, preflight.wanted_of(ROLES))
    assert len(said) == 1
    assert "leaves 8 of pods, and the job wants 18" in said[0]
    assert preflight.lacking(quota, preflight.wanted_of(ONE)) == []
    assert preflight.wanted_of(replace(ONE))["pods"] == 3
    status["used"] |= {"services": "7"}
    status["hard"] |= {"requests.nvidia.com/gpu": "1"}
    status["used"] |= {"requests.nvidia.com/gpu": "2"}
    assert preflight.lacking(quota, preflight.wanted_of(ONE)) == [], "it wants nothing of what others have too much of"


def test_all_missing_permissions_are_told_at_once(place: KubernetesPlace, tmp_path: Path) -> None:
    (place.folder / "tell.py").write_text(programs.TELL)
    reading = {"apiGroups": [""], "resources": ["pods", "configmaps"], "verbs": ["get", "list"]}
    poor = place.api.account(place.namespace, "poor", tmp_path, [reading])
    said = place.submit("denied", "--kubeconfig", str(poor.kubeconfig), "tell.py")
    assert said.code == 2
    assert f"may not, in namespace {place.namespace}: create, delete, patch configmaps; " in said.err
    assert "create, delete, get, list statefulsets.apps; patch statefulsets/scale.apps; delete pods;" in said.err
    assert place.left() == []
    assert "no job 'denied'" in place.run("status", "denied").err


def test_what_is_not_there_is_told_before_anything_is_made(place: KubernetesPlace) -> None:
    (place.folder / "tell.py").write_text(programs.TELL)
    words = ("--gpus", "1", "--secrets", "aws", "--service_account", "nobody", "tell.py")
    said = place.submit("lacks", *words)
    assert said.code == 2
    assert "there is no Secret aws in namespace" in said.err
    assert "there is no ServiceAccount nobody" in said.err
    assert "no node of the cluster advertises nvidia.com/gpu" in said.err
    nowhere = place.submit("lacks", "--namespace", "nowhere", "tell.py")
    assert (nowhere.code, "there is no namespace nowhere" in nowhere.err) == (2, True), nowhere.err
    hard = {"spec": {"hard": {"pods": "2"}}, "metadata": {"name": "team"}}
    place.api.call("CoreV1Api", "create_namespaced_resource_quota", place.namespace, hard)
    quota = ("read_namespaced_resource_quota", "team", place.namespace)
    eventually(lambda: place.api.call("CoreV1Api", *quota)["status"].get("hard"))  # its status comes a moment later
    tight = place.submit("lacks", "tell.py")
    assert "the quota team leaves 2 of pods, and the job wants 3" in tight.err
    assert place.left() == []


def test_images_are_looked_for_in_their_registry(place: KubernetesPlace, tmp_path: Path) -> None:
    (place.folder / "tell.py").write_text(programs.TELL)
    pulling = ("--image_pull_policy", "IfNotPresent", "--secrets", "aws", "tell.py")  # aws is missing: nothing is made
    with registry_server(tmp_path) as host:
        put_image(host, "team/train", "1")
        there = place.submit("pulls", "--image", f"{host}/team/train:1", *pulling)
        assert (there.code, "there is no Secret aws" in there.err) == (2, True), there.err
        assert host not in there.err
        missing = place.submit("pulls", "--image", f"{host}/team/train:2", *pulling)
        assert f"the image {host}/team/train:2 cannot be pulled: {host} has no team/train:2" in missing.err
    gone = place.submit("pulls", "--image", f"{host}/team/train:1", *pulling)
    assert f"whether the image {host}/team/train:1 can be pulled cannot be seen from here: {host}: " in gone.err
    assert "cannot be pulled" not in gone.err
    assert place.left() == []


def test_images_are_pulled_with_the_login_of_a_secret(place: KubernetesPlace, tmp_path: Path) -> None:
    (place.folder / "tell.py").write_text(programs.TELL)
    with registry_server(tmp_path, guarded=True) as host:
        for name, password in (("right", USER[1]), ("wrong", "other")):
            config = {"auths": {host: {"username": USER[0], "password": password}}}
            held = {"metadata": {"name": name}, "type": "kubernetes.io/dockerconfigjson"}
            text = {"stringData": {".dockerconfigjson": json.dumps(config)}}
            place.api.call("CoreV1Api", "create_namespaced_secret", place.namespace, {**held, **text})
        pulling = ("--image_pull_policy", "Always", "--image", f"{host}/team/train:1", "tell.py")
        right = place.submit("pulls", "--image_pull_secret", "right", *pulling)
        assert f"{host} has no team/train:1" in right.err
        wrong = place.submit("pulls", "--image_pull_secret", "wrong", *pulling)
        assert f"cannot be pulled: {host} refuses {USER[0]}" in wrong.err
    assert (right.code, wrong.code, place.left()) == (2, 2, [])


def test_a_cluster_that_is_not_there_is_named(place: KubernetesPlace, tmp_path: Path) -> None:
    (place.folder / "tell.py").write_text(programs.TELL)
    missing = place.submit("none", "--kubeconfig", str(tmp_path / "none"), "tell.py")
    assert (missing.code, "no kubeconfig: there is no" in missing.err) == (2, True), missing.err
    wrong = place.submit("none", "--context", "other", "tell.py")
    assert (wrong.code, "other" in wrong.err) == (2, True), wrong.err
    text = place.cluster.kubeconfig.read_text()
    gone = tmp_path / "gone"
    gone.write_text(text.replace(_server(text), "https://127.0.0.1:9"))
    down = place.submit("none", "--kubeconfig", str(gone), "tell.py")
    assert (down.code, "https://127.0.0.1:9 (context lab) cannot be reached" in down.err) == (1, True), down.err


def _server(text: str) -> str:
    import yaml

    return str(yaml.safe_load(text)["clusters"][0]["cluster"]["server"])
