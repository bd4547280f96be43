"""What a forked worker does so that its process group is up sooner, and known to be: once, and out of sight."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from lattice.process.ports import ReservedPorts
from lattice.process.zygote import newborn
from tests.agents import cluster
from tests.waiting import eventually, patience


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A master port as an agent reserves it: bound, and refusing until somebody listens."""
    reserved = ReservedPorts(1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(reserved.ports[0]))
    yield reserved.ports[0]
    reserved.close()


def listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


def test_the_question_is_answered_when_the_master_listens(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[float] = []

    def wait(pause: float) -> None:
        refused.append(pause)
        time.sleep(pause)

    clock = SimpleNamespace(sleep=wait, monotonic=time.monotonic)
    monkeypatch.setattr("lattice.process.zygote.newborn.time", clock)
    question = lambda: "no"  # noqa: E731
    module = SimpleNamespace(_torchelastic_use_agent_store=question)
    monkeypatch.setitem(sys.modules, "torch.distributed.rendezvous", module)
    newborn.hurry_group()
    answers: list[object] = []
    asking = threading.Thread(target=lambda: answers.append(module._torchelastic_use_agent_store()))
    asking.start()
    eventually(lambda: len(refused) >= 3)
    assert not answers
    with listen(port):
        asking.join(patience(30))
    assert answers == ["no"]
    assert module._torchelastic_use_agent_store is question, "it is asked in this way only once"
    assert refused == sorted(refused), "it knocks less and less often"


def test_the_master_itself_waits_for_nobody(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    question = object()
    module = SimpleNamespace(_torchelastic_use_agent_store=question)
    monkeypatch.setitem(sys.modules, "torch.distributed.rendezvous", module)
    monkeypatch.setenv("RANK", "0")
    newborn.hurry_group()
    assert module._torchelastic_use_agent_store is question


@pytest.mark.parametrize("name", ["torch.distributed.rendezvous", "torch.distributed.distributed_c10d"])
def test_another_torch_is_left_alone(name: str, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace()
    monkeypatch.setitem(sys.modules, name, module)
    newborn.hurry_group()
    newborn.note_group()
    assert vars(module) == {}


def test_a_group_that_cannot_be_formed_fails_as_it_would_without_us(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with cluster(tmp_path, "--framework", "pytorch", "--nproc_per_node", "2") as run:
        script = run.script(
            "import datetime, os, time, torch.distributed as dist\n"
            "if os.environ['RANK'] == '0':\n"
            "    time.sleep(600)\n"
            "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=1))\n"
        )
        agent = run.agent(entry=[script], environ={"LATTICE_PRELOAD": ""})
        assert agent.wait(120) == 1
        output = agent.output()
    assert "init_process_group" in output and "Traceback" in output
    assert "newborn" not in output and "zygote" not in output, output
