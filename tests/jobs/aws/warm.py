"""
Commands with boto3 loaded, whose calls to AWS are counted; see :mod:`tests.jobs.warm`.

A request has ``calls``: a file that gets the names of all calls to AWS, and ``die``: after how many of those that
change something the command kills itself; 0 for before the first, -1 for never. ``answers`` are given in place of
AWS's: ``status`` and ``body`` for requests that contain ``match``, so many ``times``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.jobs.warm import serve

READING = ("Describe", "Get", "Head", "List", "Filter")


def prepare(request: Mapping[str, Any]) -> None:
    """Have a command watched."""
    count(Path(request["calls"]), request["die"])
    replace_answers(request["answers"])


def count(calls: Path, die: int) -> None:
    """Write down each call to AWS, and die after so many that change something."""
    from botocore.client import BaseClient

    original = BaseClient._make_api_call
    made = 0
    calls.write_text("")

    def watched(self: Any, operation: str, arguments: Any) -> Any:
        nonlocal made
        changing = not operation.startswith(READING)
        if changing and made == die:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = original(self, operation, arguments)
        with calls.open("a") as file:
            file.write(f"{operation}\n")
        made += changing
        if changing and made == die:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    BaseClient._make_api_call = watched


class Raw:
    """The body of an answer."""

    def __init__(self, body: str) -> None:
        self._body = body

    def stream(self, *_: Any, **__: Any) -> list[bytes]:
        return [self._body.encode()]


def replace_answers(rules: list[dict[str, Any]]) -> None:
    """Give some answers ourselves, below all that retries."""
    from botocore.awsrequest import AWSResponse
    from botocore.httpsession import URLLib3Session

    original = URLLib3Session.send

    def send(self: Any, request: Any) -> Any:
        body = request.body.decode(errors="replace") if isinstance(request.body, bytes) else str(request.body)
        for rule in rules:
            if rule["times"] > 0 and rule["match"] in f"{request.url} {body}":
                rule["times"] -= 1
                return AWSResponse(request.url, rule["status"], {}, Raw(rule["body"]))
        return original(self, request)

    URLLib3Session.send = send


def load() -> None:
    """Load what all commands need."""
    import boto3
    import botocore.client
    import botocore.loaders
    import botocore.session

    import lattice.job_commands
    import lattice.jobs.backends.aws

    assert boto3 and botocore.client and lattice.job_commands and lattice.jobs.backends.aws
    loader = botocore.loaders.create_loader()
    botocore.session.create_loader = lambda *_: loader  # descriptions of services are large: all sessions share them
    for service in ("autoscaling", "ec2", "logs", "s3", "ssm"):
        boto3.session.Session(region_name="eu-central-1").client(service)


if __name__ == "__main__":
    load()
    serve(prepare)
