"""One submission on Kubernetes: what of it there is, made and removed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from lattice.errors import LatticeError, UsageError
from lattice.jobs.backends import Say
from lattice.jobs.index import Record
from lattice.jobs.kubernetes import plan
from lattice.jobs.kubernetes.client import Client, KubernetesFailed
from lattice.jobs.kubernetes.names import INDEX, ROLE, SUBMISSION, JobNames
from lattice.jobs.kubernetes.plan import Facts
from lattice.jobs.kubernetes.settings import settings
from lattice.jobs.kubernetes.views import Seen, is_over
from lattice.jobs.progress import ENDED

Json = dict[str, Any]

POLL = 0.5
GONE_TIMEOUT = 180.0
"""seconds that the cluster has to take everything away"""
MADE = (
    *("StatefulSet", "Pod", "Service", "NetworkPolicy", "RoleBinding", "Role", "ServiceAccount", "Secret"),
    "ConfigMap",
)
"""kinds of objects that a job has, in the order in which they go"""


class Deployment:
    """
    A submission.

    :param record: what is remembered of it
    :param client: its cluster
    """

    def __init__(self, record: Record, client: Client) -> None:
        self.record = record
        self.client = client
        self.settings = settings(record.job.place_options)
        self.names = JobNames(record.job, record.submission)
        self.namespace = str(record.facts.get("namespace") or self.settings.namespace or client.namespace)

    def make(self, code: bytes | None, digest: str, say: Say) -> None:
        """
        Make what is missing.

        :param code: the archive; None if there is none to send
        :raises UsageError: somebody else has a job of this name
        """
        facts = self.record.facts
        known = {"secrets": facts["secrets"], "shared": facts.get("shared", False), "since": self.record.since}
        known["namespace"] = self.namespace
        owner = self._ensure(plan.owner(self.names, Facts(**known)))
        uid = owner["metadata"]["uid"]
        made = plan.manifests(self.names, self.settings, Facts(**known, code=code, digest=digest, owner=uid))
        for manifest in made:
            name = manifest["metadata"]["name"]
            if manifest["kind"] == "StatefulSet":
                say(f"StatefulSet {name}: {manifest['spec']['replicas']} pods")
            self._ensure(manifest)

    def seen(self) -> Seen:
        """Look at it."""
        pods = self._by_name("Pod")
        sets = self._by_name("StatefulSet")
        return Seen(pods, sets, self.shelves(), self._events(pods, sets))

    def shelves(self) -> dict[int, dict[str, str]]:
        """Give what the nodes left word of, by their numbers."""
        found = self.client.list("ConfigMap", self.namespace, f"{self.names.selector},{INDEX}")
        return {int(one["metadata"]["labels"][INDEX]): one.get("data") or {} for one in found}

    def others(self) -> list[tuple[str, str]]:
        """Name what of it has no state: kind and name."""
        kinds = [kind for kind in MADE if kind not in ("StatefulSet", "Pod")]
        return [(kind, name) for kind in kinds for _, name, _ in self._made(kind, keep_result=False)]

    def scale(self, name: str, nodes: int) -> None:
        """Have a StatefulSet have so many pods."""
        self.client.patch("StatefulSet", self.namespace, name, {"spec": {"replicas": nodes}}, "scale")

    def stop(self, grace: float) -> None:
        """Have all pods of the roles end; they are killed after so many seconds."""
        for name in self.names.sets():
            try:
                self.scale(name, 0)
            except KubernetesFailed as error:
                if error.status != 404:
                    raise
        deadline = time.monotonic() + grace + GONE_TIMEOUT
        asked: set[str] = set()
        while pods := self._unheard():
            for name, pod in pods.items():
                uid = pod["metadata"]["uid"]
                allowed = pod["metadata"].get("deletionGracePeriodSeconds")
                if uid not in asked or (allowed is not None and allowed > grace):
                    asked.add(uid)
                    self.client.delete("Pod", self.namespace, name, max(int(grace), 1))
            self.bury(pods)
            if time.monotonic() > deadline:
                raise LatticeError(f"these pods do not end: {', '.join(pods)}")
            time.sleep(POLL)

    def _unheard(self) -> dict[str, Json]:
        """Give the pods of nodes that have not said goodbye: until then all that they need has to stay."""
        shelves = self.shelves()
        gone = {one["pod"] for one in shelves.values() if f'"state": "{ENDED}"' in one.get("view", "")}
        return {name: pod for name, pod in self.node_pods().items() if pod["metadata"]["uid"] not in gone}

    def bury(self, pods: Mapping[str, Json]) -> list[str]:
        """Forget pods that are to end, where nothing waits for them but time; a StatefulSet replaces no pod before."""
        over = [name for name, pod in pods.items() if is_over(pod, time.time())]
        for name in over:
            self.client.delete("Pod", self.namespace, name, 0)
        return over

    def node_pods(self) -> dict[str, Json]:
        """Give the pods of all roles, by name."""
        found = self.client.list("Pod", self.namespace, self.names.selector)
        sets = self.names.sets()
        return {one["metadata"]["name"]: one for one in found if one["metadata"]["name"].rpartition("-")[0] in sets}

    def undo(self, *, keep_result: bool = False, within: float = GONE_TIMEOUT) -> list[str]:
        """
        Remove all of it, and tell what could not be removed.

        :param keep_result: leave what the nodes said of themselves, and the owner that it belongs to
        """
        left: dict[str, str] = {}
        deadline = time.monotonic() + within
        while True:
            there = [one for kind in MADE for one in self._made(kind, keep_result=keep_result)]
            for kind, name, going in there:
                try:
                    if kind == "Pod":
                        self.bury(self._by_name("Pod") if going else {})
                    if not going:
                        self.client.delete(kind, self.namespace, name, 1 if kind == "Pod" else None)
                except KubernetesFailed as error:
                    left[f"{kind} {name}"] = str(error)
            if not there or left or time.monotonic() > deadline:
                late = [f"  {kind} {name}: it does not go" for kind, name, _ in there] if not left else []
                return [*(f"  {what}: {why}" for what, why in left.items()), *late]
            time.sleep(POLL)

    def _made(self, kind: str, *, keep_result: bool) -> list[tuple[str, str, bool]]:
        """Name what there is of a kind, and whether it is on its way out."""
        found = []
        for one in self.client.list(kind, self.namespace, self.names.selector):
            metadata = one["metadata"]
            result = kind == "ConfigMap" and (INDEX in metadata["labels"] or metadata["name"] == self.names.owner)
            if not (keep_result and result):
                found.append((kind, metadata["name"], bool(metadata.get("deletionTimestamp"))))
        return found

    def _ensure(self, manifest: Json) -> Json:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        try:
            return self.client.create(self.namespace, manifest)
        except KubernetesFailed as error:
            if error.status != 409:
                raise
        found = self.client.get(kind, self.namespace, name)
        if found is None:
            return self.client.create(self.namespace, manifest)  # it went in this moment
        if not self._is_own(found):
            job = found["metadata"].get("labels", {}).get(SUBMISSION)
            whose = f"belongs to the submission {job}" if job else "is not Lattice's"
            raise UsageError(
                f"{kind} {name} is there already in namespace {self.namespace}, and {whose}: take another --name or "
                "--namespace"
            )
        held: Json = {key: manifest[key] for key in ("data", "binaryData") if key in manifest}
        # What half a submission sent may be of files that have changed since.
        return self.client.patch(kind, self.namespace, name, held) if held and kind != "StatefulSet" else found

    def _is_own(self, found: Json | None) -> bool:
        return found is not None and found["metadata"].get("labels", {}).get(SUBMISSION) == self.names.submission

    def _by_name(self, kind: str) -> dict[str, Json]:
        found = self.client.list(kind, self.namespace, self.names.selector)
        return {one["metadata"]["name"]: one for one in found if ROLE in one["metadata"]["labels"]}

    def _events(self, pods: Mapping[str, Json], sets: Mapping[str, Json]) -> list[Json]:
        """Give what the cluster says about pods that do not run; asked only if there are any."""
        wanted = sum(one["spec"].get("replicas", 0) for one in sets.values())
        running = sum(one.get("status", {}).get("phase") == "Running" for one in pods.values())
        if running >= wanted:
            return []
        try:
            found = self.client.list("Event", self.namespace, fields="type=Warning")
        except KubernetesFailed:
            return []  # not all may read them
        uids = {one["metadata"].get("uid") for one in (*pods.values(), *sets.values())}
        own = [one for one in found if one["involvedObject"].get("uid") in uids]
        return sorted(own, key=lambda one: one.get("lastTimestamp") or one.get("eventTime") or "")
