"""Ask a Kubernetes API server, leaving no connection behind."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from tests.waiting import eventually

KINDS = {
    "pods": ("CoreV1Api", "pod"),
    "services": ("CoreV1Api", "service"),
    "configmaps": ("CoreV1Api", "config_map"),
    "secrets": ("CoreV1Api", "secret"),
    "serviceaccounts": ("CoreV1Api", "service_account"),
    "persistentvolumeclaims": ("CoreV1Api", "persistent_volume_claim"),
    "statefulsets": ("AppsV1Api", "stateful_set"),
    "jobs": ("BatchV1Api", "job"),
    "roles": ("RbacAuthorizationV1Api", "role"),
    "rolebindings": ("RbacAuthorizationV1Api", "role_binding"),
    "networkpolicies": ("NetworkingV1Api", "network_policy"),
}
"""what a job may be made of: the class of the client that knows it, and its name there"""

Json = dict[str, Any]


class Refused(Exception):
    """The API server said no."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"{status}: {said}")
        self.status = status


@dataclass(frozen=True)
class Api:
    """An API server, as one user."""

    kubeconfig: Path

    def call(self, group: str, operation: str, *arguments: Any, **options: Any) -> Any:
        """
        Call a function of the official client.

        :param group: its class, such as ``CoreV1Api``
        :param operation: its name
        :param arguments: what it takes; objects are given as in a manifest
        :return: the answer as the server gave it: JSON as plain values, text of a log as it is
        """
        from kubernetes import client, config

        # Not the client's own values: those of a new client want fields that an old server does not send.
        connection = config.new_client_from_config(str(self.kubeconfig))
        try:
            called = getattr(getattr(client, group)(connection), operation)
            response = called(*arguments, _preload_content=False, **options)
            answer, kind = response.data.decode(), response.headers["Content-Type"]
        except client.ApiException as error:
            raise Refused(error.status, str(error.body or error.reason)) from None
        finally:
            connection.close()
            connection.rest_client.pool_manager.clear()
        return json.loads(answer) if kind == "application/json" else answer

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """Give an object of one of :data:`KINDS`, or None if there is none of that name."""
        group, word = KINDS[kind]
        try:
            found: Json = self.call(group, f"read_namespaced_{word}", name, namespace)
        except Refused as error:
            if error.status == 404:
                return None
            raise
        return found

    def create(self, kind: str, namespace: str, manifest: Json) -> Json:
        """Make an object of one of :data:`KINDS`."""
        group, word = KINDS[kind]
        made: Json = self.call(group, f"create_namespaced_{word}", namespace, manifest)
        return made

    def list(self, kind: str, namespace: str, selector: str = "") -> Sequence[Json]:
        """List the objects of one of :data:`KINDS` that carry a label."""
        group, word = KINDS[kind]
        listed: Json = self.call(group, f"list_namespaced_{word}", namespace, label_selector=selector)
        return list(listed["items"])

    def left(self, namespace: str, selector: str) -> Sequence[str]:
        """Name everything that carries a label, as ``kind/name``; what is on its way out is still there."""
        return [
            f"{kind}/{found['metadata']['name']}" for kind in KINDS for found in self.list(kind, namespace, selector)
        ]

    def phase(self, namespace: str, pod: str) -> str:
        """Tell how far a pod is, or "Absent"."""
        found = self.get("pods", namespace, pod)
        return found["status"]["phase"] if found else "Absent"

    def log(self, namespace: str, pod: str) -> str:
        """Give what a pod of one container printed."""
        printed: str = self.call("CoreV1Api", "read_namespaced_pod_log", pod, namespace)
        return printed

    @contextlib.contextmanager
    def namespace(self, prefix: str = "lattice-test") -> Iterator[str]:
        """Have a namespace for the length of a block; the server takes all that is in it away afterwards."""
        name = f"{prefix}-{token_hex(4)}"
        self.call("CoreV1Api", "create_namespace", {"metadata": {"name": name}})
        try:
            # Until there is an account, pods are refused.
            eventually(lambda: self.get("serviceaccounts", name, "default"))
            yield name
        finally:
            self.call("CoreV1Api", "delete_namespace", name)

    def account(self, namespace: str, name: str, folder: Path, rules: Sequence[Json] = ()) -> Api:
        """
        Make a service account.

        :param folder: for its kubeconfig
        :param rules: what it may do in its namespace, as in a Role; nothing, unless told
        :return: the API server as that account
        """
        import yaml

        self.create("serviceaccounts", namespace, {"metadata": {"name": name}})
        if rules:
            self.create("roles", namespace, {"metadata": {"name": name}, "rules": list(rules)})
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
            subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
            binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
            self.create("rolebindings", namespace, binding)
            self.wait_for_rule(namespace, name, rules[-1])
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": None}}
        answer = self.call("CoreV1Api", "create_namespaced_service_account_token", name, namespace, request)
        held = yaml.safe_load(self.kubeconfig.read_text())
        context = next(each for each in held["contexts"] if each["name"] == held["current-context"])
        context["context"] |= {"user": name, "namespace": namespace}
        held |= {"contexts": [context], "users": [{"name": name, "user": {"token": answer["status"]["token"]}}]}
        kubeconfig = folder / f"{name}.kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(held))
        kubeconfig.chmod(0o600)
        return Api(kubeconfig)

    def wait_for_rule(self, namespace: str, account: str, rule: Json) -> None:
        """Wait until a service account may do what a rule says: the API server learns of it a moment later."""
        group, resource, verb = (rule[key][-1] for key in ("apiGroups", "resources", "verbs"))
        asked = {"namespace": namespace, "group": group, "resource": resource, "verb": verb}
        spec = {"user": f"system:serviceaccount:{namespace}:{account}", "resourceAttributes": asked}

        def allowed() -> bool:
            answer = self.call("AuthorizationV1Api", "create_subject_access_review", {"spec": spec})
            return bool(answer["status"]["allowed"])

        eventually(allowed)
