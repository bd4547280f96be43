"""The API server, as a pod of a job asks it: with the pod's own account, and nothing but Python."""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]

FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT = 10.0
PAUSE = 1.0


class Account:
    """
    Who this pod is.

    :param folder: token, certificates and namespace of its account
    :param environ: says where the API server is
    """

    def __init__(self, folder: Path = FOLDER, environ: Mapping[str, str] = os.environ) -> None:
        self._folder = folder
        self._url = f"https://{environ.get('KUBERNETES_SERVICE_HOST')}:{environ.get('KUBERNETES_SERVICE_PORT')}"

    def shelf(self, name: str) -> dict[str, str]:
        """Read what is in a ConfigMap."""
        found: dict[str, str] = self._ask("GET", f"/api/v1/namespaces/{self._namespace}/configmaps/{name}").get(
            "data", {}
        )
        return found

    def put(self, name: str, data: Mapping[str, str | None]) -> None:
        """Put something into a ConfigMap; None takes it out."""
        self._ask("PATCH", f"/api/v1/namespaces/{self._namespace}/configmaps/{name}", {"data": dict(data)})

    def scale(self, name: str, nodes: int) -> None:
        """Have a StatefulSet have so many pods."""
        path = f"/apis/apps/v1/namespaces/{self._namespace}/statefulsets/{name}/scale"
        self._ask("PATCH", path, {"spec": {"replicas": nodes}})

    @property
    def _namespace(self) -> str:
        return (self._folder / "namespace").read_text(encoding="utf-8").strip()

    def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        token = (self._folder / "token").read_text(encoding="utf-8").strip()  # it is renewed every hour
        headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        headers["Content-Type"] = "application/merge-patch+json"
        data = None if body is None else json.dumps(body).encode()
        context = ssl.create_default_context(cafile=str(self._folder / "ca.crt"))
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=TIMEOUT, context=context) as answer:
            found: Json = json.loads(answer.read())
            return found


def attempt(action: Callable[[], Any], within: float = 0.0) -> bool:
    """
    Do what the job can do without, but whoever looks at it misses.

    :param within: seconds in which it is tried again
    :return: whether it was done
    """
    deadline = time.monotonic() + within
    while True:
        try:
            action()
            return True
        except (OSError, ValueError) as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code in (401, 403, 404)
            if refused or time.monotonic() >= deadline:
                print(f"lattice: the API server: {error}", file=sys.stderr, flush=True)
                return False
        time.sleep(PAUSE)
