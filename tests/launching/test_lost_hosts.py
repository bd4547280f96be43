"""Hosts behind real SSH that are cut off, dropped, stopped, or were never fit: the right words, and nothing left."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lattice
from lattice.process.guard import read_processes
from tests.agents import ROOT
from tests.lab.hosts import Network, network
from tests.launching.staying import Families, stay
from tests.launching.test_launch import ALONE
from tests.launching.transports.sshd import Server, make_key, server
from tests.waiting import eventually, patience


@pytest.fixture
def families(tmp_path: Path) -> Families:
    folder = tmp_path / "families"
    folder.mkdir()
    return Families(folder)


@pytest.fixture
def python(tmp_path: Path) -> str:
    """An interpreter that finds the Lattice that is tested, installed or not."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}/src:{ROOT} exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    return str(program)


def end_ssh(up: Server, agent: int) -> None:
    for process in read_processes():
        if process.parent == os.getpid() and _command(process.pid).startswith(b"ssh\0"):
            os.kill(process.pid, signal.SIGKILL)


def end_session(up: Server, agent: int) -> None:
    for pid in up.descendants():
        if _command(pid).startswith(b"sshd"):
            os.kill(pid, signal.SIGKILL)


def stop_agent(up: Server, agent: int) -> None:
    os.kill(agent, signal.SIGSTOP)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (end_ssh, "its connection"),
        (end_session, "its connection"),
        (stop_agent, "not been heard of for 10s|ended unexpectedly"),
    ],
    ids=["ssh killed", "session killed", "agent stopped"],
)
def test_a_connection_that_drops_and_an_agent_that_is_stopped(
    fault: Callable[[Server, int], None], says: str, families: Families, python: str, tmp_path: Path
) -> None:
    with server(tmp_path / "sshd") as up:
        config = tmp_path / "config"
        config.write_text(up.host_block("one"))
        settings = {**ALONE, "hostnames": ["one"], "ssh_config_file": config, "python": python}
        handle = lattice.launch(stay, (str(families.folder),), wait=False, workers_per_host=1, **settings)
        (agent,) = families.pids(1, ("agent",))
        fault(up, agent)
        with pytest.raises(lattice.AgentFailedError, match=says) as caught:
            handle.result(patience(60))
        assert caught.value.host == "one"
        families.gone(1)


HOSTS = {
    "fine": 'exec {python} "$@"',
    "nothing": 'exec /no/such/python "$@"',
    "bare": 'unset PYTHONPATH; exec {python} -I -S "$@"',
    "older": "exec {python} -c \"import lattice; lattice.__version__ = '0.0.1'; {main}\"",
    "other": "exec {python} -c \"import platform; platform.python_version = lambda: '3.9.1'; {main}\"",
}


def test_all_that_is_wrong_with_hosts_is_one_message_and_nothing_is_left(tmp_path: Path) -> None:
    main = "from lattice.launching import node; node.main()"
    python = tmp_path / "python"
    cases = "".join(f"  {name}) {line.format(python=sys.executable, main=main)} ;;\n" for name, line in HOSTS.items())
    python.write_text(f"#!/bin/sh\nexport PYTHONPATH={ROOT}/src\ncase $LC_CASE in\n{cases}esac\n")
    python.chmod(0o755)
    make_key(tmp_path / "stranger")
    with server(tmp_path / "sshd", AcceptEnv="LC_CASE") as up:
        config = tmp_path / "config"
        config.write_text(
            "".join(up.host_block(name, SetEnv=f"LC_CASE={name}") for name in HOSTS)
            + up.host_block("closed", Port="1")
            + up.host_block("refused", IdentityFile=str(tmp_path / "stranger"))
        )
        names = [*HOSTS, "closed", "refused", "unknown.invalid"]
        settings = {**ALONE, "hostnames": names, "ssh_config_file": config, "python": str(python)}
        began = time.monotonic()
        with pytest.raises(lattice.AgentFailedError) as caught:
            lattice.launch(os.getpid, workers_per_host=1, **settings)
        assert time.monotonic() - began < patience(60)
        lines = str(caught.value).splitlines()
        assert lines[0] == "no agent on 7 hosts:"
        told = dict(line.strip().split(": ", 1) for line in lines[1:])
        assert list(told) == names[1:]
        assert "cannot be executed there" in told["nothing"]
        assert "has no Lattice" in told["bare"]
        assert "it has Lattice 0.0.1 and the launcher" in told["older"]
        assert "it has Python 3.9.1 and the launcher" in told["other"]
        assert "refuses connections" in told["closed"]
        assert "permission denied" in told["refused"]
        assert "does not resolve" in told["unknown.invalid"]
        eventually(lambda: not up.descendants())


SCRIPT = """
import json, sys
import lattice
from tests.launching import staying
function, folder, settings = sys.argv[1:]
try:
    print(json.dumps(lattice.launch(getattr(staying, function), (folder,), **json.loads(settings)).results))
except lattice.AgentFailedError as error:
    print(json.dumps([error.host, str(error)]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_launcher_on_other_hosts(
    number: int, families: Families, python: str, tmp_path: Path
) -> None:
    with server(tmp_path / "sshd") as up:
        config = tmp_path / "config"
        config.write_text(up.host_block("one") + up.host_block("two"))
        settings = {**ALONE, "hostnames": ["one", "two"], "ssh_config_file": str(config), "python": python}
        arguments = ("-c", SCRIPT, "stay", str(families.folder), json.dumps({**settings, "workers_per_host": 1}))
        with subprocess.Popen([python, *arguments], stderr=subprocess.DEVNULL) as launcher:
            try:
                families.pids(2)
                launcher.send_signal(number)
                assert launcher.wait(patience(60)) == -number
            finally:
                launcher.kill()
        families.gone(2)


class Cut:
    """A launch from the first of three hosts on the other two."""

    def __init__(self, hosts: Network, config: Path, families: Families, python: str) -> None:
        self.hosts, self.families = hosts, families
        self._config, self._python = config, python

    def run(self, function: str, **more: Any) -> tuple[Any, float]:
        """Cut the last host off once all workers run; give what the launch printed, and after how many seconds."""
        first, *others = self.hosts.names
        settings = {
            **ALONE,
            "hostnames": others,
            "workers_per_host": 1,
            "ssh_config_file": str(self._config),
            "python": self._python,
            **more,
        }
        arguments = ("-c", SCRIPT, function, str(self.families.folder), json.dumps(settings))
        with subprocess.Popen(
            self.hosts.on(first, self._python, *arguments), stdout=subprocess.PIPE, text=True
        ) as launcher:
            try:
                self.families.pids(2)
                began = time.monotonic()
                self.hosts.partition(others[-1])
                said, _ = launcher.communicate(timeout=patience(120))
            finally:
                launcher.kill()
        return json.loads(said), time.monotonic() - began


@pytest.fixture
def cut(families: Families, python: str, tmp_path: Path) -> Iterator[Cut]:
    config = tmp_path / "config"
    with network(3) as hosts, contextlib.ExitStack() as stack:
        blocks = []
        for name in hosts.names[1:]:
            up = stack.enter_context(server(tmp_path / name, on=hosts.on(name), address=hosts.address(name)))
            blocks.append(up.host_block(name))
        config.write_text("".join(blocks))
        yield Cut(hosts, config, families, python)
        hosts.heal()


@pytest.mark.lab
def test_a_host_that_is_cut_off_is_named_and_ends_all_by_itself(cut: Cut) -> None:
    (host, text), seconds = cut.run("talk")
    assert host == cut.hosts.names[2]
    assert f"failed on {host}: " in text and ("not been heard of" in text or "its connection" in text)
    assert seconds < patience(60)  # 10 to 12 s on an idle machine
    cut.families.gone(2, within=60)


@pytest.mark.lab
def test_the_rest_goes_on_without_a_host_that_is_cut_off(cut: Cut) -> None:
    results, _ = cut.run("talk_at_first", max_restarts=1, min_hosts=1)
    assert results == {cut.hosts.names[1]: ["1"]}
    cut.families.gone(2, within=60)
