"""Pods that run a script of the shell, for what a test asks from inside a cluster."""

from __future__ import annotations

from typing import Any

from tests.lab.cluster import IMAGE
from tests.lab.kubernetes_api import Api
from tests.waiting import eventually

LABELS = {"app": "peers"}


def template(script: str, mounts: list[dict[str, str]] | None = None, **more: Any) -> dict[str, Any]:
    """Give a pod that runs a script of the shell as a user who is not root."""
    safe = {"runAsNonRoot": True, "runAsUser": 1000, "allowPrivilegeEscalation": False}
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-ec", script],
        "securityContext": safe,
        "volumeMounts": mounts or [],
    }
    spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, **more}
    return {"metadata": {"labels": LABELS}, "spec": spec}


def run(api: Api, namespace: str, name: str, script: str, **more: Any) -> str:
    """Run a pod to its end, and give what it printed."""
    pod = template(script, **more)
    pod["metadata"] = {"name": name, "labels": LABELS}
    api.create("pods", namespace, pod)
    ended = eventually(lambda: {"Succeeded", "Failed"} & {api.phase(namespace, name)}, within=60)
    printed = api.log(namespace, name)
    assert ended == {"Succeeded"}, printed
    return printed
