"""Commands as somebody else: by the account of a pod, from inside of a cluster; and what a cluster is given for all."""

from __future__ import annotations

import base64
import contextlib
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from tests.jobs.kubernetes.pods import KubernetesPlace
from tests.lab.cluster import IMAGE
from tests.lab.kubernetes_api import Refused
from tests.lab.scripts import require
from tests.waiting import eventually, patience

AS_IN_A_POD = (
    "mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io && "
    'cp -r "$1" /run/secrets/kubernetes.io/serviceaccount && shift && exec "$@"'
)


def account(place: KubernetesPlace, folder: Path) -> Path:
    """Make an account that may do in its namespace what jobs need, and give what its pods would find."""
    name = {"metadata": {"name": "operator"}}
    place.api.call("CoreV1Api", "create_namespaced_service_account", place.namespace, name)
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": place.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
    binding = {**name, "subjects": [subject], "roleRef": role}
    place.api.call("RbacAuthorizationV1Api", "create_namespaced_role_binding", place.namespace, binding)
    rule = {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["create"]}
    place.api.wait_for_rule(place.namespace, "operator", rule)

    def token() -> str:
        found = place.api.call("CoreV1Api", "read_namespaced_service_account", "operator", place.namespace)
        return str(found["secrets"][0]["name"]) if found.get("secrets") else ""

    secret = place.api.call("CoreV1Api", "read_namespaced_secret", eventually(token), place.namespace)["data"]
    files = folder / "account"
    files.mkdir()
    for name_of, data in secret.items():
        (files / name_of).write_bytes(base64.b64decode(data))
    return files


def test_a_job_is_submitted_from_inside_of_the_cluster(place: KubernetesPlace, tmp_path: Path) -> None:
    require("unshare", "mount")
    files = account(place, tmp_path)
    config = yaml.safe_load(place.cluster.kubeconfig.read_text())
    server = urlsplit(config["clusters"][0]["cluster"]["server"])
    kept = {name: value for name, value in place.environ().items() if name != "KUBECONFIG"}
    there = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": server.hostname, "KUBERNETES_SERVICE_PORT": server.port}
    environ = {**kept, **{name: str(value) for name, value in there.items()}}

    def inside(*words: str) -> subprocess.CompletedProcess[str]:
        pod = ["unshare", "--mount", "--propagation", "private", "sh", "-c", AS_IN_A_POD, "sh", str(files)]
        command = [*pod, sys.executable, "-m", "lattice", *words]
        return subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=patience(200), check=False
        )

    (tmp_path / "tell.py").write_text("print('by an account')\n")
    image = ["--image", IMAGE, "--image_pull_policy", "Never", "--keep_for", "4"]
    done = inside("submit", "--name", "inside", "--on", "kubernetes", *image, "--wait", "tell.py")
    assert done.returncode == 0, done.stderr
    assert "by an account" in done.stdout
    assert place.namespace in inside("describe", "inside").stdout
    ended = inside("forget", "inside")
    assert ended.returncode == 0, ended.stderr
    assert place.left() == []


def test_the_plugin_for_gpus_is_made_once(place: KubernetesPlace) -> None:
    words = ["install", "--on", "kubernetes", "--gpu", "--kubeconfig", str(place.cluster.kubeconfig)]
    plugin = ("nvidia-device-plugin-daemonset", "kube-system")
    try:
        first, again = place.run(*words), place.run(*words)
        assert (first.code, again.code) == (0, 0), first.err + again.err
        assert "is there" not in first.err and "nvidia-device-plugin-daemonset is there" in again.err
        found = place.api.call("AppsV1Api", "read_namespaced_daemon_set", *plugin)
        assert found["spec"]["template"]["spec"]["priorityClassName"] == "system-node-critical"
    finally:
        with contextlib.suppress(Refused):
            place.api.call("AppsV1Api", "delete_namespaced_daemon_set", *plugin)
