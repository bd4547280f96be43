"""The lab's Kubernetes as a place for jobs: a namespace for each test."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lattice.jobs.kubernetes.views import is_over
from tests.jobs.commands import Commands, commands
from tests.jobs.places import Place, Said
from tests.lab.cluster import IMAGE, Cluster
from tests.lab.kubernetes_api import Api, Refused
from tests.waiting import eventually

OURS = "app.kubernetes.io/managed-by=lattice"
KEPT_FOR = 4
"""seconds that pods stay after the end of a job: short, so that a test sees them go by themselves"""

STARTED = 150.0
"""seconds in which pods have come up on a busy machine"""
ELASTIC = (
    *("--size", "1:2", "--rdzv_conf", "last_call=1,grow_interval=1,lease_ttl=2"),
    *("--shutdown_timeout", "2", "--notice_grace", "1"),
)
"""options of a job that can do with one node"""
ELASTIC_GRACE = 18
"""seconds that its pods have to end: those of its workers, and 15"""


@dataclass
class KubernetesPlace(Place):
    """A namespace in which only the jobs of one test are."""

    cluster: Cluster = field(kw_only=True)
    namespace: str = field(kw_only=True)
    commands: Commands = field(kw_only=True)

    def run(self, *words: str, die: int = -1) -> Said:
        """Run a command to its end; it dies after so many changes, see :mod:`tests.jobs.kubernetes.warm`."""
        return self.commands.run(words, self.environ(), self.folder, die=die)

    @property
    def api(self) -> Api:
        """The API server, as a user who may do everything."""
        return self.cluster.api

    def running(self) -> list[str]:
        """List the pods, without those that have ended and only wait for their kubelet to say so."""
        found = self.api.list("pods", self.namespace, OURS)
        return [one["metadata"]["name"] for one in found if not is_over(one, time.time())]

    def tidy(self) -> None:
        """Forget what only waits for a kubelet: it takes a minute, now and then."""
        for pod in self.api.list("pods", self.namespace, OURS):
            if is_over(pod, time.time()):
                now = {"grace_period_seconds": 0}
                with contextlib.suppress(Refused):
                    self.api.call("CoreV1Api", "delete_namespaced_pod", pod["metadata"]["name"], self.namespace, **now)

    def left(self) -> list[str]:
        """List all that there is of any job."""
        return list(self.api.left(self.namespace, OURS))

    def end_jobs(self) -> list[str]:
        """End all jobs of the test; return what ``lattice kill`` wrote where it failed."""
        failures = []
        for name in sorted(self.submitted):
            said = self.run("kill", "--grace", "5", name)
            unknown = said.code == 2 and f"there is no job '{name}'" in said.err  # refused, rolled back or forgotten
            if said.code != 0 and not unknown:
                failures.append(f"lattice kill {name} ended with {said.code}: {said.out}{said.err}")
        return failures

    def emptied(self) -> bool:
        """Check that nothing is left of any job, once what only waits for a kubelet is forgotten."""
        self.tidy()
        left = self.left()
        assert not left, f"left in namespace {self.namespace}: {', '.join(left)}"
        return True

    def kill_agent(self, node: dict[str, Any]) -> None:
        """Kill the agent of a node, from inside its container; its number in there is what status tells."""
        name, _, number = node["host"].rpartition("-")
        said = self.run("exec", name, "--index", number, "--", "sh", "-c", f"kill -9 {node['pid']}")
        assert said.code == 0, said.err

    def events(self) -> list[str]:
        """Give what the cluster said, for whoever reads why a test failed."""
        found = self.api.call("CoreV1Api", "list_namespaced_event", self.namespace)["items"]
        return [f"{one['involvedObject'].get('name')}: {one.get('reason')}: {one.get('message')}" for one in found]


def together(place: KubernetesPlace, name: str, world: int) -> bool:
    """Tell whether all nodes of a job run in one round of so many."""
    nodes = place.status(name)["nodes"]
    return {(node["state"], node["world"]) for node in nodes} == {("running", world)} and len(nodes) == world


@contextlib.contextmanager
def secret(place: KubernetesPlace, name: str, **variables: str) -> Iterator[Said]:
    """Have a Secret of variables for the length of a block, made by ``lattice secret``."""
    where = ["--kubeconfig", str(place.cluster.kubeconfig), "--namespace", place.namespace]
    before = dict(place.variables)
    place.variables |= variables
    made = place.run("secret", "create", name, "--from_env", *variables, *where)
    place.variables = before
    assert made.code == 0, made.err
    try:
        yield made
    finally:
        deleted = place.run("secret", "delete", name, *where)
    assert deleted.code == 0, deleted.err


@pytest.fixture(scope="session")
def warm() -> Iterator[Commands]:
    """What runs commands without loading the package kubernetes each time."""
    with commands("tests.jobs.kubernetes.warm") as up:
        yield up


@pytest.fixture
def place(kubernetes_cluster: Cluster, warm: Commands, namespace: str, tmp_path: Path) -> Iterator[KubernetesPlace]:
    """A namespace, empty; it is empty again at the end."""
    kubeconfig = ["--kubeconfig", str(kubernetes_cluster.kubeconfig), "--namespace", namespace]
    image = ["--image", IMAGE, "--image_pull_policy", "Never", "--keep_for", str(KEPT_FOR)]

    def options(size: int) -> list[str]:
        return ["--size", str(size), *kubeconfig, *image]

    where: dict[str, Any] = {"cluster": kubernetes_cluster, "namespace": namespace, "commands": warm}
    made = KubernetesPlace("kubernetes", tmp_path, tmp_path / "home", options, **where)
    made.queues = True
    yield made
    print("\n".join(made.events()))
    failures = made.end_jobs()
    # What a kill that failed has left is removed, if it can be, for the tests that come; the failure stays one.
    eventually(lambda: (not failures or not made.end_jobs()) and made.emptied(), within=120)
    assert not failures, "\n".join(failures)
