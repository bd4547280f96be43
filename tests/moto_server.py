"""AWS as moto has it, in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import pytest

from tests.etcd_server import free_ports, listens
from tests.waiting import eventually


@dataclass(frozen=True)
class MotoServer:
    """One that answers."""

    url: str
    variables: dict[str, str]
    """for whoever shall use it; the credentials mean nothing elsewhere"""
    pid: int


@contextmanager
def moto_server(folder: Path, port: int = 0) -> Iterator[MotoServer]:
    """
    Run moto's server as our child.

    :param port: one that is free, if it matters which
    """
    for module in ("boto3", "moto"):
        pytest.importorskip(module, reason=f"{module} is not installed")
    port = port or free_ports(1)[0]
    log = folder / "moto.log"
    program = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, "-c", program],
            # Machine images are most of what it makes anew for an empty account, and nobody looks at them.
            env={**os.environ, "MOTO_EC2_LOAD_DEFAULT_AMIS": "false"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:

        def up() -> bool:
            assert server.poll() is None, log.read_text()
            return listens(server.pid, port)

        eventually(up, within=60)
        socket.create_connection(("127.0.0.1", port), 10).close()
        url = f"http://127.0.0.1:{port}"
        variables = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": f"AKIA{token_hex(8).upper()}",
            "AWS_SECRET_ACCESS_KEY": token_hex(20),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nowhere",
            "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
        }
        yield MotoServer(url, variables, server.pid)
    finally:
        server.kill()
        server.communicate()
