"""A real Kubernetes of our own, in private namespaces, whose nodes can lose power; or one that somebody names."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.kubernetes_api import Api, Refused
from tests.lab.scripts import call, require

IMAGE = "local/lattice-node:1"
"""on every node: Python, etcd, OpenSSL and the Lattice of this tree, for a user with the id 1000; never pulled"""
OTHER = "LATTICE_TEST_KUBECONFIG"
"""names the kubeconfig of a cluster to use instead of our own; its nodes have the image, too"""

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Cluster:
    """A Kubernetes that is up."""

    api: Api
    variables: dict[str, str] | None = None
    """of the lab's scripts; None for a cluster that is not ours"""

    @property
    def kubeconfig(self) -> Path:
        """The file that leads to it, as a user who may do everything."""
        return self.api.kubeconfig

    def add_node(self, index: int = 2) -> str:
        """Bring a node up, 2 to 4, and give its name; one that lost its power comes back with an empty disk."""
        call("kubernetes/node.sh", str(index), variables=self._own(), within=240)
        return f"node{index}"

    @contextlib.contextmanager
    def node(self, index: int = 2) -> Iterator[str]:
        """Have one more node for the length of a block; the cluster forgets it afterwards, with the pods on it."""
        name = self.add_node(index)
        try:
            yield name
        finally:
            self.power_off(index)
            self.api.call("CoreV1Api", "delete_node", name)
            listed = self.api.call("CoreV1Api", "list_pod_for_all_namespaces", field_selector=f"spec.nodeName={name}")
            for pod in (found["metadata"] for found in listed["items"]):
                # By force: the kubelet that would agree is gone.
                now = {"grace_period_seconds": 0}
                with contextlib.suppress(Refused):
                    self.api.call("CoreV1Api", "delete_namespaced_pod", pod["name"], pod["namespace"], **now)

    def power_off(self, index: int = 2) -> None:
        """Cut the power of a node: its kubelet and all its containers are gone, and nobody gets to say goodbye."""
        call("kubernetes/node.sh", str(index), "off", variables=self._own())

    def kill_containers(self, namespace: str, pod: str) -> None:
        """Kill all processes of a pod's containers at once; its node is fine, and sees it."""
        found = self.api.get("pods", namespace, pod)
        assert found, f"no pod {pod}"
        node = self._cgroup() / found["spec"]["nodeName"]
        for container in found["status"]["containerStatuses"]:
            for cgroup in node.rglob(container["containerID"].removeprefix("containerd://")):
                _signal_all(cgroup, signal.SIGKILL)

    def log_folders(self, node: str) -> list[str]:
        """List the folders in which a node's kubelet has the logs of its pods: ``NAMESPACE_POD_UID``."""
        (kubelet,) = _pids(self._cgroup() / node, only="kubelet")
        return [folder.name for folder in Path("/proc", str(kubelet), "root", "var/log/pods").iterdir()]

    @contextlib.contextmanager
    def silent_kubelet(self, node: str) -> Iterator[None]:
        """Let a node's kubelet hang for the length of a block: the node is lost to the cluster, and its pods go on."""
        cgroup = self._cgroup() / node
        _signal_all(cgroup, signal.SIGSTOP, only="kubelet")
        try:
            yield
        finally:
            _signal_all(cgroup, signal.SIGCONT, only="kubelet")

    def inside(self, *argv: str) -> list[str]:
        """Give a command line that runs a program of this machine in the network of the cluster's first node."""
        init = call("kubernetes/init.sh", variables=self._own()).strip()
        return ["nsenter", f"--net=/proc/{init}/ns/net", "--", *argv]

    def own(self) -> None:
        """Skip the test in a cluster that is not ours: it does something to all that runs there."""
        self._own()

    def _own(self) -> dict[str, str]:
        if self.variables is None:
            pytest.skip(f"does something to nodes, and the cluster of {OTHER} is not ours to break")
        return self.variables

    def _cgroup(self) -> Path:
        return Path("/sys/fs/cgroup/freezer/lattice-lab") / self._own()["LAB_NAME"] / "kubernetes"


@contextlib.contextmanager
def cluster(tell: Callable[[str], None] | None = None) -> Iterator[Cluster]:
    """
    Have a Kubernetes of one node for the length of a block; all of it goes at once, even if this process is killed.

    :param tell: called with each line about the progress of what takes minutes the first time
    """
    pytest.importorskip("kubernetes", reason="a cluster is asked with the package kubernetes")
    if other := os.environ.get(OTHER):
        yield Cluster(Api(Path(other)))
        return
    require("apt-get", "unshare")
    if not Path("/sys/fs/cgroup/freezer").is_dir():
        pytest.skip(f"the lab's cluster needs cgroup v1; set {OTHER} to use another")
    if "VERSION_CODENAME=bookworm\n" not in Path("/etc/os-release").read_text():
        pytest.skip(f"the lab's cluster is built from the sources of Debian 12; set {OTHER} to use another")
    # Not below the temporary folder: what was built is used again, and sockets need short paths.
    variables = {"LAB_NAME": f"t{os.getpid()}x{next(_numbers)}k", "LAB_OWNER": str(os.getpid())}
    call("kubernetes/provision.sh", variables=variables, within=2400, tell=tell)
    try:
        with tempfile.TemporaryDirectory(prefix="lattice-image-") as folder:
            image = f"{folder}/lattice-node.tar"
            call("kubernetes/image.sh", sys.executable, image, variables=variables, within=600, tell=tell)
            exports = call("kubernetes/up.sh", "0", image, variables=variables, within=540)
        kubeconfig = Path(exports.strip().rpartition("=")[2])
        yield Cluster(Api(kubeconfig), variables)
    finally:
        call("kubernetes/down.sh", variables=variables, within=120)
    assert not (left := remains(kubeconfig)), f"a cluster left {left}"


def remains(kubeconfig: Path) -> list[str]:
    """Name what there is of a cluster of ours: its folder, processes, mounts and cgroups."""
    state = kubeconfig.parent
    name = state.parent.name
    found = [str(path) for path in [state, *Path("/sys/fs/cgroup").glob(f"*/lattice-lab/{name}")] if path.exists()]
    found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if f"/{name}/" in line]
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"LAB_NAME={name}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return found


def _signal_all(cgroup: Path, number: signal.Signals, only: str = "") -> None:
    for pid in _pids(cgroup, only):
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _pids(cgroup: Path, only: str = "") -> Iterator[int]:
    """List the processes of a cgroup and those below it; only those of a name, if one is given."""
    for listing in cgroup.rglob("cgroup.procs"):
        for pid in listing.read_text().split():
            with contextlib.suppress(OSError):
                if not only or Path(f"/proc/{pid}/comm").read_text().strip() == only:
                    yield int(pid)
