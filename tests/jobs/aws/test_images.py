"""A registry of AWS is logged in to before an image is pushed there."""

from __future__ import annotations

import os

from tests.jobs.aws.conftest import REGION, Cloud
from tests.jobs.test_images import DOCKER

REGISTRY = f"123456789012.dkr.ecr.{REGION}.amazonaws.com"


def test_a_push_to_ecr_logs_in(cloud: Cloud) -> None:
    docker = cloud.folder / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    asked = cloud.folder / "asked"
    said = cloud.run(
        *("image", "push", "train:1", REGISTRY),
        PATH=f"{docker.parent}:{os.environ['PATH']}",
        ASKED=str(asked),
        FAILS="",
    )
    assert (said.code, said.out) == (0, f"{REGISTRY}/train:1\n"), said.err
    login, password, *rest = asked.read_text().replace("tag train", "\ntag train").splitlines()
    assert login == f"login --username AWS --password-stdin {REGISTRY}"
    assert password.endswith("auth-token")
    assert password not in said.out + said.err
    assert rest == [f"tag train:1 {REGISTRY}/train:1", f"push {REGISTRY}/train:1"]
