"""The learner and the workers of the examples in a cluster: results and state are in S3, and outlive their pods."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.jobs.kubernetes.buckets import bucket
from tests.jobs.kubernetes.pods import KEPT_FOR, STARTED, KubernetesPlace
from tests.lab.cluster import IMAGE
from tests.waiting import eventually

EXAMPLES = Path(__file__).parents[3] / "examples" / "rl"
RESULTS = "s3://bucket/dqn"
STEPS = "from lattice.checkpoint import Checkpointer; found = Checkpointer(sys.argv[1]).steps()"
GOAL = 120
"""mean reward of the last evaluation, which ends the job: chance gives 20"""
LINES = "from lattice.rl.report import *; found = read_lines(Place(sys.argv[1]), sys.argv[2])"


@contextlib.contextmanager
def packages(place: KubernetesPlace) -> Iterator[None]:
    """Have a claim ``packages`` for the length of a block, with what this Python has: torch is too large to copy."""
    name = f"packages-{place.namespace}"
    size, modes = {"storage": "1Mi"}, ["ReadOnlyMany"]
    reference = {"namespace": place.namespace, "name": "packages"}
    common = {"accessModes": modes, "storageClassName": ""}
    volume = {"capacity": size, "hostPath": {"path": sysconfig.get_path("purelib")}, "claimRef": reference, **common}
    place.api.call("CoreV1Api", "create_persistent_volume", {"metadata": {"name": name}, "spec": volume})
    try:
        claim = {"resources": {"requests": size}, "volumeName": name, **common}
        about = {"metadata": {"name": "packages"}, "spec": claim}
        place.api.create("persistentvolumeclaims", place.namespace, about)
        yield
    finally:
        place.api.call("CoreV1Api", "delete_persistent_volume", name)


def job() -> dict[str, Any]:
    """Give the example's job as it is, but for a goal that takes half a minute, and packages in place of an image."""
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / "dqn.yaml").read_text())
    found |= {"folder": str(EXAMPLES), "image": IMAGE, "secrets": "aws"}
    for role in found["roles"].values():
        role["volumes"] = {"packages": {"path": "/packages", "claim": "packages", "read_only": True}}
        role["env"]["PYTHONPATH"] = "/packages"
    found["roles"]["learner"]["env"] |= {"RESULTS": RESULTS, "REWARD": GOAL, "SECONDS": 900}
    return found


def found(place: KubernetesPlace, program: str, *arguments: str) -> list[Any]:
    """Run a program where S3 can be reached, and give what it has found."""
    argv = place.cluster.inside(
        sys.executable, "-c", f"import json, sys; {program}; print(json.dumps(found))", *arguments
    )
    said = subprocess.run(argv, env=place.environ(), stdout=subprocess.PIPE, check=True)
    answer: list[Any] = json.loads(said.stdout)
    return answer


def test_dqn_learns_although_learner_and_worker_lose_their_containers(place: KubernetesPlace) -> None:
    for needed in ("torch", "gymnasium", "zmq"):
        pytest.importorskip(needed)
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the image has Python 3.11, and is given the packages of this one")
    with bucket(place), packages(place):
        (place.folder / "dqn.yaml").write_text(yaml.safe_dump(job()))
        where = ["--kubeconfig", str(place.cluster.kubeconfig), "--namespace", place.namespace]
        place.submitted.add("dqn")
        said = place.run(
            *("submit", "--file", "dqn.yaml", "--on", "kubernetes", *where),
            *("--image_pull_policy", "Never", "--keep_for", str(KEPT_FOR)),
        )
        assert said.code == 0, said.err
        eventually(lambda: found(place, STEPS, f"{RESULTS}/state"), within=STARTED)
        for pod in ("dqn-learner-0", "dqn-worker-1"):
            place.cluster.kill_containers(place.namespace, pod)
        assert place.run("wait", "--timeout", "1000", "dqn").code == 0, place.run("logs", "dqn").out
        rows = found(place, LINES, RESULTS, "metrics.jsonl")
        assert (rows[-1]["life"], rows[-1]["reward_best"] >= GOAL) == (2, True), rows[-1]
        again = next(row for row in rows if row["life"] == 2)
        saved = found(place, LINES, RESULTS, "rewards/00000001.jsonl")
        before = [row for row in saved if row["kind"] == "training"]
        assert again["episodes"] >= len(before) > 0, "it went on, and did not begin anew"
        eventually(lambda: not place.running(), within=STARTED)
