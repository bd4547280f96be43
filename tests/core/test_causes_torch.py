"""The same questions, asked of what the installed torch really prints."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from lattice.core.causes import is_bind_failure, is_connection_error, last_traceback, missing_rank
from tests.tiers import quick_and_long
from tests.waiting import patience

WORKER = """
import os, signal, sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
tensor = torch.ones(10)
dist.all_reduce(tensor)
if dist.get_rank() == int(sys.argv[1]):
    os.kill(os.getpid(), signal.SIGKILL)
while True:
    dist.all_reduce(tensor)
"""


def start(rank: int, port: int, *argv: str) -> subprocess.Popen[str]:
    environ = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, *argv], env={**os.environ, **environ}, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("victim", quick_and_long([0], [1]))
def test_the_peer_of_a_killed_worker(victim: int) -> None:
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        workers = [start(rank, held.getsockname()[1], str(victim)) for rank in range(2)]
        words = [worker.communicate(timeout=patience(120))[1] for worker in workers]
    assert workers[victim].returncode == -9
    assert last_traceback(words[1 - victim])
    assert is_connection_error(words[1 - victim])
    assert not is_connection_error(words[victim])


def test_a_taken_master_port() -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = start(0, port, "0").communicate(timeout=patience(120))[1]
    assert is_bind_failure(words, port)
    assert not is_bind_failure(words, port + 1)
    assert not is_connection_error(words)


def test_missing_variables() -> None:
    environ = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    program = "import torch.distributed as dist; dist.init_process_group('gloo')"
    result = subprocess.run([sys.executable, "-c", program], check=False, env=environ, capture_output=True, text=True)
    assert missing_rank(result.stderr)
