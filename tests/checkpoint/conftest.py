"""Places for checkpoints: folders, S3 as moto has it, and what fsspec knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.leaks import may_leak, no_leaks
from tests.moto_server import MotoServer, moto_server

__all__ = ["may_leak", "no_leaks"]
BUCKET = "of-the-tests"


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoServer]:
    """S3 with a bucket, for all tests of a process."""
    with moto_server(tmp_path_factory.mktemp("moto")) as server:
        make_bucket(server)
        yield server


def make_bucket(server: MotoServer) -> None:
    """Make what a user has before."""
    import boto3

    boto3.client(
        "s3",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id=server.variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=server.variables["AWS_SECRET_ACCESS_KEY"],
    ).create_bucket(Bucket=BUCKET)


@pytest.fixture(params=["folder", "s3"])
def where(request: pytest.FixtureRequest, s3: MotoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place that can be used from any process that has this one's environment."""
    if request.param == "folder":
        return str(tmp_path / "saved")
    for name, value in s3.variables.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{tmp_path.name}"
