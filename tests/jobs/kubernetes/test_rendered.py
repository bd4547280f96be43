"""A job as files: they hold no secret, and whoever applies them has a job that runs and ends by itself."""

from __future__ import annotations

import json
import os
import subprocess

from tests.jobs.kubernetes.pods import KEPT_FOR, STARTED, KubernetesPlace
from tests.lab.cluster import IMAGE
from tests.lab.scripts import require
from tests.waiting import eventually, patience

LEARNER = """\
import lattice
print("found", len(lattice.peers("worker", at_least=2)), flush=True)
"""
JOB = f"""\
folder: project
primary: learner
image: {IMAGE}
roles:
  learner:
    script: learn.py
  worker:
    command: [sleep, 1000]
    size: 2
    group: each
    shutdown_timeout: 2
    notice_grace: 1
"""


def kubectl(place: KubernetesPlace, *words: str) -> str:
    """Run the cluster's own command, or a script that does."""
    variables = {"KUBECONFIG": str(place.cluster.kubeconfig), "HOME": str(place.folder)}
    environ = {**os.environ, **variables}
    ended = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=patience(120), check=False)
    assert ended.returncode == 0, f"{words}: {ended.stdout}{ended.stderr}"
    return ended.stdout


def render(place: KubernetesPlace) -> None:
    project = place.folder / "project"
    project.mkdir()
    (project / "learn.py").write_text(LEARNER)
    (place.folder / "job.yaml").write_text(JOB)
    words = ["render", "--file", "job.yaml", "--name", "given", "--on", "kubernetes", "-o", "out"]
    words += ["--namespace", place.namespace, "--image_pull_policy", "Never", "--keep_for", str(KEPT_FOR)]
    said = place.run(*words)
    assert said.code == 0, said.err


def test_applied_as_it_is_it_runs_to_its_end_and_its_pods_go(place: KubernetesPlace) -> None:
    require("kubectl")
    render(place)
    folder = place.folder / "out"
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == {
        *("job.yaml", "learner.yaml", "worker.yaml", "rdzv.yaml"),
        *("secret/make.sh", "secret/order-learner", "secret/order-worker"),
    }
    assert "kind: Secret\n" not in "".join(path.read_text() for path in folder.glob("*.yaml"))

    kubectl(place, "sh", str(folder / "secret" / "make.sh"))
    kubectl(place, "kubectl", "apply", "-f", str(folder))

    def ended() -> dict[str, int]:
        shelves = [place.api.get("configmaps", place.namespace, f"given-node-{index}") for index in range(3)]
        views = [json.loads((shelf or {}).get("data", {}).get("view", "{}")) for shelf in shelves]
        return {view["host"]: view["status"] for view in views if view.get("state") == "ended"}

    eventually(lambda: ended() == {"given-learner-0": 0, "given-worker-0": 0, "given-worker-1": 0}, within=STARTED)
    learned = place.api.get("configmaps", place.namespace, "given-node-0")
    assert learned
    assert "found 2\n" in learned["data"]["log"]
    eventually(lambda: not place.running(), within=60)
    kubectl(place, "kubectl", "delete", "-f", str(folder))
    kubectl(place, "kubectl", "--namespace", place.namespace, "delete", "secret", "given")
    eventually(place.emptied, within=60)
