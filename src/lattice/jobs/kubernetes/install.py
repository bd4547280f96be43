"""What a cluster has for all jobs: an etcd where they meet, and what makes GPUs known. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from lattice.jobs.kubernetes.names import MANAGED_BY
from lattice.jobs.kubernetes.order import PORT, SHARED, WORK
from lattice.jobs.kubernetes.pods import AS_USER, FAREWELL, SAFE, etcd_container, etcd_secret

Json = dict[str, Any]

SERVICE, NAMESPACE = SHARED.split(".")
NAME = "lattice-rdzv"
LABELS = {MANAGED_BY: "lattice", "app.kubernetes.io/name": NAME}
STORAGE = "2Gi"
PLUGIN_IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.17.4"


def shared_etcd(image: str, secrets: Mapping[str, str], pull_policy: str = "") -> list[Json]:
    """
    Give an etcd for all jobs of a cluster, whose data outlive its pod.

    :param image: one with Lattice and etcd
    :param secrets: certificate, key and password
    :param pull_policy: when the image is pulled; empty for Kubernetes' own rule
    """
    held = {name: base64.b64encode(text.encode()).decode() for name, text in secrets.items()}
    # The same for every pod: the data are those of the one before.
    variables = [{"name": "HOME", "value": WORK}, {"name": "LATTICE_POD_UID", "value": NAME}]
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": AS_USER,
        "terminationGracePeriodSeconds": FAREWELL,
        "containers": [etcd_container(image, pull_policy, variables, "data")],
        "volumes": [etcd_secret(NAME)],
    }
    storage = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": STORAGE}}}
    set_ = {
        "serviceName": SERVICE,
        "replicas": 1,
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": pod},
        "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": LABELS}, "spec": storage}],
    }
    service = {"selector": LABELS, "ports": [{"name": "etcd", "port": PORT}]}
    # Pods of jobs, wherever they are: an empty selector of namespaces means all of them.
    jobs = {"namespaceSelector": {}, "podSelector": {"matchLabels": {MANAGED_BY: "lattice"}}}
    admitted = [{"from": [jobs], "ports": [{"protocol": "TCP", "port": PORT}]}]
    policy = {"podSelector": {"matchLabels": LABELS}, "policyTypes": ["Ingress"], "ingress": admitted}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": {MANAGED_BY: "lattice"}}},
        _object("v1", "Secret", NAME, type="Opaque", data=held),
        _object("networking.k8s.io/v1", "NetworkPolicy", NAME, spec=policy),
        _object("v1", "Service", SERVICE, spec=service),
        _object("apps/v1", "StatefulSet", NAME, spec=set_),
    ]


def device_plugin() -> list[Json]:
    """Give what makes NVIDIA's GPUs known on every node that has some."""
    labels = {"name": "nvidia-device-plugin-ds"}
    container = {
        "name": "nvidia-device-plugin-ctr",
        "image": PLUGIN_IMAGE,
        "env": [{"name": "FAIL_ON_INIT_ERROR", "value": "false"}],
        "securityContext": SAFE,
        "volumeMounts": [{"name": "device-plugin", "mountPath": "/var/lib/kubelet/device-plugins"}],
    }
    pod = {
        "automountServiceAccountToken": False,
        "priorityClassName": "system-node-critical",
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [container],
        "volumes": [{"name": "device-plugin", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}],
    }
    spec = {
        "selector": {"matchLabels": labels},
        "updateStrategy": {"type": "RollingUpdate"},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    metadata = {"name": "nvidia-device-plugin-daemonset", "namespace": "kube-system", "labels": LABELS}
    return [{"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}]


def _object(version: str, kind: str, name: str, **more: Any) -> Json:
    metadata = {"name": name, "namespace": NAMESPACE, "labels": LABELS}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}
