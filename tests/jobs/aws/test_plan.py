"""
What a submission to AWS would make, in full, as ``--dry_run`` prints it: without AWS, and without boto3.

The files in ``golden`` are written anew with ``LATTICE_WRITE_PLANS=1``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.places import Place

GOLDEN = Path(__file__).parent / "golden"
SPECS: dict[str, Any] = {
    "region": "eu-central-1",
    "rdzv": {
        "instance_type": "t3.small",
        "accelerator": "none",
        "instance_role": "lattice-node",
        "subnets": ["subnet-a", "subnet-b"],
        "security_groups": ["sg-1"],
    },
    "worker": {
        "instance_type": "m5.large",
        "accelerator": "none",
        "instance_role": "lattice-node",
        "subnets": ["subnet-a", "subnet-b"],
        "security_groups": ["sg-1"],
        "docker_image": "lattice-agent:1",
        "s3_bucket": "bucket",
    },
}
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "script": ({}, ("--size", "2", "train.py", "--", "--lr", "0.1", "two words", 'it\'s $HOME\n"quoted" *')),
    "everything": (
        {
            "instance_type": "p4d.24xlarge",
            "accelerator": "gpu",
            "efs_file_system_id": "fs-1",
            "s3_prefix": "jobs/",
            "docker_image": "123456789012.dkr.ecr.eu-central-1.amazonaws.com/train:2",
            "max_spot_price": 9.5,
            "key_pair": "mine",
            "ebs_volume_gb": 500,
        },
        (
            *("--size", "2:8", "--nproc_per_node", "8", "--framework", "pytorch", "--shutdown_timeout", "90"),
            *("--rdzv_conf", "last_call=5", "--env", "COLOUR=dark green", "project", "train.py"),
        ),
    ),
    "archive": ({}, ("s3://elsewhere/code.tar.gz", "train.py")),
    "roles": ({}, ("--file", "roles.yaml")),
    "in_image": ({}, ("--no_upload", "/opt/app", "train.py", "--", "-x")),
}
ROLES = """\
folder: project
env: {COLOUR: dark green}
roles:
  learner:
    script: train.py
    args: [--lr, 0.1]
    instance_type: p4d.24xlarge
    nproc_per_node: 8
  actor:
    command: [./act, two words]
    size: 1:4
    group: each
    if_failed: go_on
    shutdown_timeout: 45
  judge:
    script: judge.py
    group: learner
"""


def planned(folder: Path, changes: dict[str, Any], words: tuple[str, ...]) -> str:
    (folder / "project").mkdir()
    for name in ("train.py", "project/train.py", "project/judge.py"):
        (folder / name).touch()
    (folder / "roles.yaml").write_text(ROLES)
    (folder / "specs.json").write_text(json.dumps({**SPECS, "worker": {**SPECS["worker"], **changes}}))
    place = Place("", folder, folder / "home")
    said = place.run("submit", "--dry_run", "--name", "try", "--on", "aws", "--specs_file", "specs.json", *words)
    assert (said.code, said.err) == (0, "")
    assert not place.home.exists(), "a plan makes nothing"
    return said.out.replace(str(folder), "FOLDER")


@pytest.mark.parametrize("case", sorted(CASES))
def test_a_plan_is_as_written(case: str, tmp_path: Path) -> None:
    plan = planned(tmp_path, *CASES[case])
    file = GOLDEN / f"{case}.txt"
    if os.environ.get("LATTICE_WRITE_PLANS"):
        file.write_text(plan)
    assert plan == file.read_text(), "if this is meant: LATTICE_WRITE_PLANS=1 pytest tests/jobs/aws/test_plan.py"


@pytest.mark.parametrize("case", sorted(CASES))
def test_user_data_is_a_script_that_fits_and_has_no_secret(case: str) -> None:
    text = (GOLDEN / f"{case}.txt").read_text()
    parts = text.split("UserData:\n")[1:]
    assert len(parts) == (4 if case == "roles" else 2)
    for part in parts:
        lines = takewhile(lambda line: line.startswith("      "), part.splitlines())
        program = "".join(f"{line[6:]}\n" for line in lines)
        assert program.startswith("#!/bin/bash\n")
        assert len(program) < 8000, "AWS takes 16 KB, in base64"
        checked = subprocess.run(["bash", "-n"], input=program, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
        for secret in ("COLOUR", "dark green", "--lr", "PRIVATE KEY"):
            assert secret not in program
        if shutil.which("shellcheck"):
            found = subprocess.run(
                ["shellcheck", "-S", "warning", "-"], input=program, capture_output=True, text=True, check=False
            )
            assert found.returncode == 0, found.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rdzv_endpoint", "etcd:2379", "train.py"), "--rdzv_endpoint has no meaning with --on aws"),
        (("--hosts", "a,b", "train.py"), "--hosts has no meaning with --on aws"),
    ],
)
def test_what_has_no_meaning_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    (tmp_path / "train.py").touch()
    (tmp_path / "specs.json").write_text(json.dumps(SPECS))
    place = Place("", tmp_path, tmp_path / "home")
    found = place.run("submit", "--name", "try", "--on", "aws", "--specs_file", "specs.json", *words)
    assert (found.code, said in found.err) == (2, True), found.err
    assert not list((tmp_path / "home" / "jobs").glob("*.json"))
