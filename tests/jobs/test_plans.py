"""What ``--dry_run`` prints, in full: the files in ``plans`` are written anew with ``LATTICE_WRITE_PLANS=1``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.jobs.places import Place

PLANS = Path(__file__).parent / "plans"
RUN = ("--framework", "pytorch", "--nproc_per_node", "8", "--max_restarts", "3", "--env", "COLOUR=dark green")
CASES = {
    "local_one": ("train.py", "--", "--lr", "0.1", "two words"),
    "local": ("--size", "2", *RUN, "project", "train.py", "--", "it's $HOME"),
    "local_etcd": ("--size", "1:2", "--rdzv_backend", "etcd", "--rdzv_endpoint", "e1:2379,e2", "train.py"),
    "ssh": ("--on", "ssh", "--hosts", "node1,user@node2:2222", *RUN, "--rdzv_conf", "last_call=5", "train.py"),
    "ssh_elastic": ("--on", "ssh", "--hosts", "node1,node2", "--size", "1:3", "--no_upload", "/there", "train.py"),
    "slurm": ("--on", "slurm", "--size", "4", *RUN, "--slurm_options", "--partition=gpu --time=8:00:00", "train.py"),
    "kubernetes_one": ("--on", "kubernetes", "--image", "me/train:1", "train.py", "--", "--lr", "0.1"),
    "kubernetes": (
        *("--on", "kubernetes", "--size", "1:2", "--image", "me/train:1", "--cpu", "4", "--memory", "16Gi"),
        *("--gpus", "8", "--secrets", "aws", "--service_account", "trainer", "--namespace", "team", "--keep_for", "60"),
        *("--image_pull_secret", "registry", *RUN, "--rdzv_conf", "last_call=5", "project", "train.py"),
    ),
    "kubernetes_s3": (
        *("--on", "kubernetes", "--size", "2", "--image", "me/train:1", "--rdzv_backend", "etcd"),
        *("--rdzv_endpoint", "etcd.other:2379", "s3://bucket/project.tar.gz", "train.py"),
    ),
    "local_roles": ("--file", "roles.yaml"),
    "ssh_roles": ("--file", "roles.yaml", "--on", "ssh", "--hosts", "node1,node2"),
    "slurm_roles": ("--file", "roles.yaml", "--on", "slurm"),
    "kubernetes_roles": ("--file", "roles.yaml", "--on", "kubernetes", "--image", "me/train:1"),
    "slurm_elastic": ("--on", "slurm", "--size", "2:4", "project", "train.py"),
}
ROLES = """\
folder: project
max_restarts: 1
env: {COLOUR: green}
primary: learner
roles:
  worker:
    command: [./act, two words]
    size: 1:2
    group: each
    if_failed: go_on
    env: {COLOUR: dark green}
  learner:
    script: train.py
    args: [--lr, 0.1]
    nproc_per_node: 2
    size: 2
  evaluator:
    script: judge.py
    group: learner
"""


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_plan_is_as_written(case: str, tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    for name in ("train.py", "project/train.py", "project/judge.py"):
        (tmp_path / name).touch()
    (tmp_path / "roles.yaml").write_text(ROLES)
    place = Place("", tmp_path, tmp_path / "home")
    said = place.run("submit", "--dry_run", "--name", "try", *CASES[case])
    assert (said.code, said.err) == (0, "")
    plan = said.out.replace(str(place.home), "HOME").replace(str(tmp_path), "FOLDER").replace(sys.executable, "PYTHON")
    file = PLANS / f"{case}.txt"
    if os.environ.get("LATTICE_WRITE_PLANS"):
        file.write_text(plan)
    assert plan == file.read_text(), "if this is meant: LATTICE_WRITE_PLANS=1 pytest tests/jobs/test_plans.py"
    assert not place.home.exists(), "a plan makes nothing"
