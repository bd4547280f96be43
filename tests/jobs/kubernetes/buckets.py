"""S3 in the network of the lab's cluster."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.jobs.kubernetes.pods import KubernetesPlace, secret

KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL")
SERVER = """
import sys
import boto3
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="10.200.0.1", port=0, verbose=False)
server.start()
url = "http://%s:%s" % server.get_host_and_port()
service = boto3.session.Session("a", "b", region_name="us-east-1").client("s3", endpoint_url=url)
service.create_bucket(Bucket="bucket")
exec(sys.argv[1])
print(url, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def bucket(place: KubernetesPlace, fill: str = "") -> Iterator[None]:
    """
    Have s3://bucket for the length of a block, and a Secret ``aws`` with which pods, and commands, get to it.

    :param fill: a program that puts something into it, by a client of boto3 called ``service``
    """
    pytest.importorskip("moto", reason="S3 is moto's")
    argv = place.cluster.inside(sys.executable, "-c", SERVER, fill)
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        url = process.stdout.readline().strip()
        assert url
        variables = dict(zip(KEYS, ("a", "b", "us-east-1", url), strict=True))
        place.variables |= variables
        with secret(place, "aws", **variables):
            yield
    finally:
        process.kill()
        process.communicate()
