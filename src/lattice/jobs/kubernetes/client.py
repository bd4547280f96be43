"""The one file that knows the package kubernetes: the API as plain values, errors in words."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from lattice.errors import LatticeError, UsageError

Json = dict[str, Any]

KINDS = {
    "Pod": ("api/v1", "pods"),
    "ConfigMap": ("api/v1", "configmaps"),
    "Secret": ("api/v1", "secrets"),
    "Service": ("api/v1", "services"),
    "ServiceAccount": ("api/v1", "serviceaccounts"),
    "Event": ("api/v1", "events"),
    "Namespace": ("api/v1", "namespaces"),
    "Node": ("api/v1", "nodes"),
    "ResourceQuota": ("api/v1", "resourcequotas"),
    "PersistentVolumeClaim": ("api/v1", "persistentvolumeclaims"),
    "StatefulSet": ("apis/apps/v1", "statefulsets"),
    "DaemonSet": ("apis/apps/v1", "daemonsets"),
    "Role": ("apis/rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "SelfSubjectAccessReview": ("apis/authorization.k8s.io/v1", "selfsubjectaccessreviews"),
}
"""where the API has each kind"""
EVERYWHERE = ("Namespace", "Node", "SelfSubjectAccessReview")
"""kinds that are in no namespace"""
OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
TIMEOUT = 30.0
MISSING = 'needs the package kubernetes: pip install "lattice-addons-pytorch[kubernetes]"'


class KubernetesFailed(LatticeError):
    """The API server said no, or nothing."""

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        """of HTTP; 0 if it was not reached"""
        super().__init__(message)


class Stream:
    """What a container writes, as it comes; another thread may end it."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self._socket = getattr(response.connection, "sock", None)
        self._stopped = False

    def chunks(self) -> Iterator[bytes]:
        """Give what comes until it ends; a connection that breaks is an end."""
        from urllib3.exceptions import HTTPError

        try:
            yield from self._response.stream(1 << 16, decode_content=False)
        except (HTTPError, OSError, ValueError, AttributeError):
            return  # whoever reads on asks anew; what closes it from another thread shows as any of these
        finally:
            self._response.close()

    def stop(self) -> None:
        """End it."""
        import socket

        try:
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended


class Client:
    """A cluster, as the user whom a kubeconfig names, or as the account of the pod that this runs in."""

    def __init__(self, kubeconfig: str = "", context: str = "") -> None:
        """
        Read the user's configuration; nothing is sent yet.

        :param kubeconfig: a file; empty for the usual ones
        :param context: one of its contexts; empty for the current one
        :raises UsageError: there is no package, no configuration, or no such context
        """
        try:
            from kubernetes import client, config
        except ImportError:
            raise UsageError(f"--on kubernetes {MISSING}") from None
        configuration = client.Configuration()
        named = kubeconfig or os.environ.get("KUBECONFIG", "") or str(Path("~/.kube/config").expanduser())
        found = any(Path(path).expanduser().exists() for path in named.split(os.pathsep) if path)
        self.context, self.namespace = context, "default"
        try:
            if found:
                config.load_kube_config(named, context or None, configuration, persist_config=False)
                contexts, active = config.list_kube_config_contexts(named)
                chosen = next((one for one in contexts if one["name"] == context), active)
                self.context = chosen["name"]
                self.namespace = chosen["context"].get("namespace") or "default"
            elif not kubeconfig and not context and os.environ.get("KUBERNETES_SERVICE_HOST"):
                config.load_incluster_config(configuration)
                self.context, self.namespace = "this pod's account", OWN_NAMESPACE.read_text().strip()
            else:
                raise UsageError(
                    f"no kubeconfig: there is no {named}; name one with --kubeconfig or KUBECONFIG (on EKS: aws eks "
                    "update-kubeconfig --name CLUSTER)"
                )
        except (config.ConfigException, OSError, TypeError, KeyError) as error:
            raise UsageError(f"the kubeconfig {named} is of no use: {error}") from None
        configuration.retries = 2
        self._configuration = configuration
        self._api = client.ApiClient(configuration)

    @property
    def server(self) -> str:
        """The address of the API server."""
        return str(self._configuration.host)

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """Give an object; None if there is none."""
        try:
            return self._ask("GET", self._path(kind, namespace, name))
        except KubernetesFailed as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str, namespace: str, selector: str = "", fields: str = "") -> list[Json]:
        """List objects, by labels and fields."""
        query = {"labelSelector": selector, "fieldSelector": fields}
        found = self._ask("GET", self._path(kind, namespace), {key: text for key, text in query.items() if text})
        return list(found["items"])

    def create(self, namespace: str, manifest: Mapping[str, Any], *, dry: bool = False) -> Json:
        """
        Make an object.

        :param dry: only have it checked
        :raises KubernetesFailed: with status 409 if there is one of that name
        """
        query = {"dryRun": "All"} if dry else {}
        return self._ask("POST", self._path(manifest["kind"], namespace), query, manifest)

    def patch(self, kind: str, namespace: str, name: str, change: Mapping[str, Any], part: str = "") -> Json:
        """Change an object: what is given takes the place of what is there (RFC 7386)."""
        path = self._path(kind, namespace, name) + (f"/{part}" if part else "")
        return self._ask("PATCH", path, {}, change)

    def delete(self, kind: str, namespace: str, name: str, grace: int | None = None) -> bool:
        """
        Delete an object, and in the background all that belongs to it; tells whether there was any.

        :param grace: seconds that the containers of a pod have to end; 0 forgets it at once, whatever its node says
        """
        options: Json = {"propagationPolicy": "Background"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self._ask("DELETE", self._path(kind, namespace, name), {}, options)
        except KubernetesFailed as error:
            if error.status == 404:
                return False
            raise
        return True

    def may(self, namespace: str, verb: str, group: str, resource: str, part: str = "") -> bool:
        """Tell whether this user may do something in a namespace."""
        asked = {"namespace": namespace, "verb": verb, "group": group, "resource": resource, "subresource": part}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {key: text for key, text in asked.items() if text}},
        }
        return bool(self.create("", review)["status"].get("allowed"))

    def log(self, namespace: str, pod: str, container: str, *, follow: bool, since: str = "") -> Stream:
        """
        Read what a container wrote, each line after the time of it.

        :param follow: go on until it ends
        :param since: a time, as lines have it: older ones are left out
        """
        query = {"container": container, "timestamps": "true", "follow": "true" if follow else ""}
        query = {key: text for key, text in {**query, "sinceTime": since}.items() if text}
        path = f"{self._path('Pod', namespace, pod)}/log"
        return Stream(self._send("GET", path, query, None, follow=follow))

    def execute(self, namespace: str, pod: str, container: str, argv: Sequence[str], *, stdin: bool, tty: bool) -> Any:
        """Start a program in a container; what is given is for :mod:`lattice.jobs.kubernetes.executing`."""
        from kubernetes import client, stream

        # The package puts another function into the place of this one while it connects.
        api = client.CoreV1Api(client.ApiClient(self._configuration))
        how = {"stdin": stdin, "tty": tty, "stdout": True, "stderr": not tty, "_preload_content": False}
        try:
            return stream.stream(
                api.connect_get_namespaced_pod_exec, pod, namespace, container=container, command=list(argv), **how
            )
        except client.ApiException as error:
            said = str(error.reason or error.body or error).strip()
            raise KubernetesFailed(
                f"{argv[0]} cannot be run in {container} of {pod}: {said}.", int(error.status or 0)
            ) from None

    def _path(self, kind: str, namespace: str, name: str = "") -> str:
        group, plural = KINDS[kind]
        inside = "" if kind in EVERYWHERE or not namespace else f"/namespaces/{quote(namespace)}"
        return f"/{group}{inside}/{plural}" + (f"/{quote(name)}" if name else "")

    def _ask(self, method: str, path: str, query: Mapping[str, str] = {}, body: Any = None) -> Json:
        response = self._send(method, path, query, body)
        found: Json = json.loads(response.data)
        return found

    def _send(self, method: str, path: str, query: Mapping[str, str], body: Any, *, follow: bool = False) -> Any:
        """Send by the package's own connections: its functions for it differ from version to version."""
        from urllib3 import Timeout
        from urllib3.exceptions import HTTPError

        headers = {"Accept": "application/json, */*", "User-Agent": "lattice"}
        for one in self._configuration.auth_settings().values():
            headers[one["key"]] = one["value"]
        patching = method == "PATCH"
        headers["Content-Type"] = "application/merge-patch+json" if patching else "application/json"
        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            response = self._api.rest_client.pool_manager.request(
                method,
                url,
                headers=headers,
                body=None if body is None else json.dumps(body).encode(),
                preload_content=not path.endswith("/log"),
                timeout=Timeout(connect=10, read=None if follow else TIMEOUT),
            )
        except (HTTPError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise KubernetesFailed(
                f"the API server {self.server} (context {self.context}) cannot be reached: {reason}. Is it the right "
                "--context or --kubeconfig?"
            ) from None
        if response.status >= 300:
            raise self._refused(method, path, response)
        return response

    def _refused(self, method: str, path: str, response: Any) -> KubernetesFailed:
        try:
            said = str(json.loads(response.data).get("message", ""))
        except ValueError:
            said = response.data.decode(errors="replace").strip()
        what = f"the API server {self.server} (context {self.context}) refused {method} {path}"
        if response.status == 401:
            return KubernetesFailed(f"{what}: it does not know this user; log in again.", 401)
        return KubernetesFailed(f"{what}: {said.rstrip('.') or response.status}.", response.status)
