"""A registry of AWS is logged in to by whoever pushes an image there, or asks for one."""

from __future__ import annotations

import os

import pytest

from lattice.errors import LatticeError
from lattice.jobs.images import ecr_login
from lattice.jobs.kubernetes.preflight import _own_login
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


def test_who_asks_for_an_image_in_ecr_has_a_login(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in cloud.variables.items():
        monkeypatch.setenv(name, value)
    found = _own_login(REGISTRY)
    assert found is not None and (found.user, found.password.endswith("auth-token")) == ("AWS", True)
    assert _own_login("registry.example") is None
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(LatticeError):
        ecr_login(REGISTRY)
    assert _own_login(REGISTRY) is None, "the nodes may have one all the same"
