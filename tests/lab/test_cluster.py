"""The lab's Kubernetes: pods run what a job needs, find each other, and are missed with their node; nothing is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.cluster import OTHER, Cluster, remains
from tests.lab.kubernetes_api import Api, Refused
from tests.lab.pods import LABELS, run, template
from tests.leaks import no_leaks
from tests.waiting import eventually

__all__ = ["no_leaks"]


def test_a_pod_has_what_a_node_of_a_job_needs(kubernetes_cluster: Cluster, namespace: str) -> None:
    script = """
    id -u; touch /tmp/mine "$HOME/mine"
    python -m lattice run --help | grep -o -- --nnodes | head -n 1
    lattice run --help > /dev/null
    etcd --version | head -n 1; etcdctl version | head -n 1; openssl version; tar --version | head -n 1
    """
    printed = run(kubernetes_cluster.api, namespace, "all", script)
    uid, flag, etcd, etcdctl, openssl, tar = printed.splitlines()
    assert (uid, flag) == ("1000", "--nnodes")
    assert etcd.startswith("etcd Version: 3.")
    assert etcdctl.startswith("etcdctl version: 3.")
    assert openssl.startswith("OpenSSL 3")
    assert tar.startswith("tar ")


def test_pods_of_a_stateful_set_find_each_other_by_name(kubernetes_cluster: Cluster, namespace: str) -> None:
    api = kubernetes_cluster.api
    service = {"clusterIP": "None", "selector": LABELS, "ports": [{"port": 80}], "publishNotReadyAddresses": True}
    api.create("services", namespace, {"metadata": {"name": "peers", "labels": LABELS}, "spec": service})
    script = "until getent hosts w-0.peers && getent hosts w-1.peers; do sleep 0.2; done; echo found; sleep 1000"
    spec = {
        "serviceName": "peers",
        "replicas": 2,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": LABELS},
        "template": template(script, restartPolicy="Always"),
    }
    api.create("statefulsets", namespace, {"metadata": {"name": "w", "labels": LABELS}, "spec": spec})
    pods = ("w-0", "w-1")
    eventually(lambda: all(api.phase(namespace, pod) == "Running" for pod in pods), within=60)
    eventually(lambda: all("found" in api.log(namespace, pod) for pod in pods), within=60)
    assert set(api.left(namespace, "app=peers")) == {"pods/w-0", "pods/w-1", "services/peers", "statefulsets/w"}
    api.call("AppsV1Api", "delete_namespaced_stateful_set", "w", namespace)
    api.call("CoreV1Api", "delete_namespaced_service", "peers", namespace)
    eventually(lambda: not api.left(namespace, "app=peers"), within=120)  # a kubelet takes a minute, now and then


def test_an_account_may_do_what_it_was_given_and_nothing_else(
    kubernetes_cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    api = kubernetes_cluster.api
    reading = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    reader = api.account(namespace, "reader", tmp_path, [reading])
    assert reader.list("pods", namespace) == []
    with pytest.raises(Refused, match="cannot create resource") as refused:
        reader.create("pods", namespace, {"metadata": {"name": "mine"}, **template("true")})
    assert refused.value.status == 403
    with pytest.raises(Refused, match="cannot list resource"):
        api.account(namespace, "nobody", tmp_path).list("pods", namespace)


def test_a_claim_gets_a_volume_that_outlives_the_pod(kubernetes_cluster: Cluster, namespace: str) -> None:
    api = kubernetes_cluster.api
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    api.create("persistentvolumeclaims", namespace, {"metadata": {"name": "data", "labels": LABELS}, "spec": spec})
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    mounts = [{"name": "data", "mountPath": "/data"}]
    run(api, namespace, "writer", "echo kept > /data/file", volumes=volumes, mounts=mounts)
    assert run(api, namespace, "reader", "cat /data/file", volumes=volumes, mounts=mounts) == "kept\n"
    assert "persistentvolumeclaims/data" in api.left(namespace, "app=peers")


def ready(api: Api, node: str) -> str:
    conditions = api.call("CoreV1Api", "read_node", node)["status"]["conditions"]
    status: str = next(found["status"] for found in conditions if found["type"] == "Ready")
    return status


def test_killed_containers_are_started_again(kubernetes_cluster: Cluster, namespace: str) -> None:
    api = kubernetes_cluster.api
    pod = template("sleep 1000", restartPolicy="Always")
    api.create("pods", namespace, {**pod, "metadata": {"name": "one"}})
    eventually(lambda: api.phase(namespace, "one") == "Running", within=60)
    kubernetes_cluster.kill_containers(namespace, "one")

    def restarts() -> int:
        found = api.get("pods", namespace, "one")
        assert found
        count: int = found["status"]["containerStatuses"][0]["restartCount"]
        return count

    eventually(lambda: restarts() == 1, within=60)


def test_a_node_is_missed_when_it_is_silent_and_when_it_has_no_power(
    kubernetes_cluster: Cluster, namespace: str
) -> None:
    api = kubernetes_cluster.api
    with kubernetes_cluster.node(2) as node:
        script = "while sleep 0.2; do date +%s; done"
        for name, where in (("one", node), ("other", "node1")):
            api.create("pods", namespace, {**template(script, nodeName=where), "metadata": {"name": name}})
        eventually(lambda: all(api.phase(namespace, pod) == "Running" for pod in ("one", "other")), within=60)
        # A kubelet that saw the other's would remove them within a minute.
        logs = [kubernetes_cluster.log_folders(where) for where in (node, "node1")]
        own = [[folder.split("_")[1] for folder in found if folder.startswith(namespace)] for found in logs]
        assert own == [["one"], ["other"]]
        eventually(lambda: ready(api, node) == "True", within=60)
        with kubernetes_cluster.silent_kubelet(node):
            eventually(lambda: ready(api, node) == "Unknown", within=60)
        eventually(lambda: ready(api, node) == "True", within=60)
        kubernetes_cluster.power_off(2)
        eventually(lambda: ready(api, node) == "Unknown", within=60)
    with pytest.raises(Refused, match="not found"):
        ready(api, node)


@pytest.mark.skipif(OTHER in os.environ, reason=f"makes a cluster of its own, in spite of {OTHER}")
def test_a_second_cluster_can_be_up_and_goes_with_the_process_that_made_it(kubernetes_cluster: Cluster) -> None:
    program = (
        "from tests.lab.cluster import cluster\n"
        "with cluster() as up:\n"
        "    print(up.kubeconfig, flush=True)\n"
        "    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        kubeconfig = Path(process.stdout.readline().strip())
        assert remains(kubeconfig)
        process.kill()
    eventually(lambda: not remains(kubeconfig), within=60)
    assert kubernetes_cluster.api.call("VersionApi", "get_code")["minor"]
