"""A launch that goes on in the background: what its handle tells of it."""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import lattice
from lattice.launching.channel import LOG, Channel, Kind
from lattice.launching.forwarding import WINDOW, Forwarder
from lattice.launching.supervisor import Node
from tests.waiting import eventually, patience

TWO: dict[str, Any] = {
    "hostnames": ["localhost"] * 2,
    "workers_per_host": 2,
    "backend": None,
    "framework": "generic",
    "log_handlers": None,
    "wait": False,
}


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


def talk(folder: Path) -> int:
    rank = int(os.environ["LATTICE_RANK"])
    print("rank", rank)
    if os.environ["LATTICE_ROUND"] == "1" and rank == 3:
        wait_for(folder / "fail")
        raise RuntimeError("once")
    wait_for(folder / "go")
    logging.getLogger("mine").info("done")
    return rank


def test_hosts_and_logs_of_a_launch_that_runs_restarts_and_ends(tmp_path: Path) -> None:
    handle = lattice.launch(talk, (tmp_path,), max_restarts=2, **TWO)
    try:
        followed: list[lattice.LogLine] = []
        every = handle.logs(follow=True)
        thread = threading.Thread(target=lambda: followed.extend(every))
        thread.start()
        eventually(lambda: [host.state for host in handle.hosts()] == ["running", "running"])
        first, second = handle.hosts()
        assert (first.hostname, first.agent, second.agent) == ("localhost", 0, 1)
        assert (first.workers, first.round, first.restarts, first.waits_for) == (2, 1, 0, "")
        assert len({*first.pids, *second.pids, first.pid, second.pid}) == 6
        for pid in (*first.pids, *second.pids):
            status = Path(f"/proc/{pid}/status").read_text()
            assert f"PPid:\t{first.pid}\n" in status or f"PPid:\t{second.pid}\n" in status
        eventually(
            lambda: {text for _, rank, _, text in handle.logs() if rank is not None} == {f"rank {n}" for n in range(4)}
        )
        assert [line.text for line in handle.logs("localhost", 1)].count("rank 3") == 1
        assert not list(handle.logs("elsewhere"))
        (tmp_path / "fail").touch()
        eventually(
            lambda: [(host.state, host.round, host.restarts) for host in handle.hosts()] == 2 * [("running", 2, 1)]
        )
        (tmp_path / "go").touch()
        assert handle.result(patience(60)).all() == [0, 1, 2, 3]
    finally:
        handle.cancel()
    thread.join()
    assert [host.state for host in handle.hosts()] == ["ended", "ended"]
    assert handle.status() == "succeeded"
    assert followed == list(handle.logs()) and every.dropped == 0
    assert followed.count(lattice.LogLine("localhost", 1, "logging", "INFO mine: done")) == 2
    assert "RuntimeError: once" in [text for _, rank, stream, text in followed if (rank, stream) == (1, "stderr")]
    words = [text for text in (line.text for line in handle.logs(local_rank=None)) if "round 2 starts" in text]
    assert len(words) == 2 and words[0].startswith("WARNING lattice: ")


def test_a_host_that_is_lost_says_why(tmp_path: Path) -> None:
    handle = lattice.launch(talk, (tmp_path,), **{**TWO, "hostnames": ["localhost", "nowhere.invalid"]})
    assert handle.hosts() == () or handle.hosts()[1].hostname == "nowhere.invalid"
    with pytest.raises(lattice.AgentFailedError):
        handle.result(patience(120))
    there = handle.hosts()[1]
    assert there.state == "lost" and "nowhere.invalid" in there.reason
    assert not list(handle.logs(follow=True))


def write_much() -> None:
    for number in range(20_000):
        print(number, "x" * 100)


class Stuck(logging.Handler):
    """One that waits before it takes its first record."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.released = threading.Event(), threading.Event()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.reached.set()
        self.released.wait()
        self.count += getattr(record, "local_rank", None) is not None


def see_beats(node: Node) -> None:
    seen = set()

    def several() -> bool:
        seen.add(node.heard)
        return len(seen) > 3

    eventually(several)


def test_a_handler_that_does_not_return_holds_up_nothing_but_logs() -> None:
    stuck = Stuck()
    handle = lattice.launch(write_much, **{**TWO, "log_handlers": [stuck]})
    try:
        assert stuck.reached.wait(patience(60))
        # All workers end, the agents agree on it, and signs of life go on.
        eventually(lambda: sum(len(host.pids) for host in handle.hosts()) == 0 and handle.hosts()[0].round == 1)
        for node in handle._run._crew.nodes:
            see_beats(node)
        assert handle.status() == "running"
    finally:
        stuck.released.set()
    handle.result(patience(60))
    assert stuck.count == 4 * 20_000


def test_no_more_is_sent_than_the_launcher_has_taken(tmp_path: Path) -> None:
    read, write = os.pipe()
    payload = os.memfd_create("payload", os.MFD_CLOEXEC)
    channel = Channel(read, write)
    forwarder = Forwarder(channel, tmp_path, payload, "here", "", 1 << 30, local=True)
    came = 0
    more = threading.Event()

    def receive() -> None:
        nonlocal came
        for kind, body in channel.receive():
            if kind is Kind.ALIVE:
                return
            came += len(body) - LOG.size
            more.set()

    thread = threading.Thread(target=receive)
    thread.start()
    total = 3 * WINDOW
    try:
        place = tmp_path / "round_1" / "0"
        from lattice.core.topology import Assignment, RosterEntry

        entry = RosterEntry("me", 0, 0, 1, "here", "127.0.0.1", (1,))
        forwarder.variables(Assignment("run", 1, 0, 0, "", entry, 1, 1, "", 0), 0)
        (place / "stdout.log").write_bytes(b"x" * (total - 1) + b"\n")
        eventually(lambda: came >= WINDOW)
        assert came <= WINDOW + (256 << 10)
        while came < total:
            more.clear()
            forwarder.taken(WINDOW)
            more.wait(patience(30))
    finally:
        forwarder.taken(total)
        forwarder.close()
        forwarder.forget()
        channel.send(Kind.ALIVE)
        thread.join()
        for descriptor in (read, write, payload):
            os.close(descriptor)
    assert came == total
