from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lattice.process.guard import is_marked, read_process, read_processes
from tests.waiting import eventually, pass_time, patience

AGENT = """
import os, signal, sys
from lattice.process.spawning import Guard
folder = sys.argv[2] + ".folder"
os.makedirs(folder + "/deep")
guard = Guard(folder, 0.5) if sys.argv[3] == "limited" else Guard(folder)
environ = {"PATH": os.environ["PATH"], "LATTICE_AGENT": sys.argv[1]}
script = '''
echo $$ > "$0.$1.worker"
env -i sleep 1000 & echo $! > "$0.$1.child"
setsid sleep 1000 & echo $! > "$0.$1.setsid"
(setsid sh -c 'trap "" TERM HUP INT; sleep 1000 & echo $! > "$1"; wait' sh "$0.$1.orphan" &)
if [ $1 = ended ]; then exit 0; fi
trap "" TERM HUP INT
wait
'''
for number in ("a", "b", "ended"):
    guard.spawn(["/bin/sh", "-c", script, sys.argv[2], number], environ, "/", None, 2, 2, "LATTICE_AGENT")
if sys.argv[3] == "second guard":
    os.kill(guard.pid, signal.SIGKILL)
    guard.restart()
print(guard.pid, flush=True)
signal.pause() if sys.argv[3] != "exit" else sys.stdin.read()
"""


def alive(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and not process.ended


class Agent:
    def __init__(self, folder: Path, how: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", AGENT, f"test-{os.getpid()}-{folder}", str(folder / "pid"), how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.guard = int(self.process.stdout.readline())
        names = [f"{who}.{what}" for who in ("a", "b", "ended") for what in ("worker", "child", "setsid", "orphan")]
        files = {name: folder / f"pid.{name}" for name in names}
        eventually(lambda: all(file.exists() and file.read_text().endswith("\n") for file in files.values()))
        self.family = {name: int(file.read_text()) for name, file in files.items()}
        self.folder = folder / "pid.folder"

    def living(self) -> set[str]:
        return {name for name, pid in self.family.items() if alive(pid)}

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        eventually(lambda: not alive(self.guard))
        for pid in self.family.values():
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def agent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Agent]:
    agent = Agent(tmp_path, request.param)
    yield agent
    agent.close()


EVERYBODY = {f"{who}.{what}" for who in ("a", "b", "ended") for what in ("worker", "child", "setsid", "orphan")}


@pytest.mark.parametrize("agent", ["killed", "second guard"], indirect=True)
def test_nobody_outlives_a_killed_agent(agent: Agent) -> None:
    eventually(lambda: agent.living() == EVERYBODY - {"ended.worker"})
    assert agent.folder.is_dir()
    agent.process.kill()
    eventually(lambda: not agent.living())
    eventually(lambda: not alive(agent.guard))
    assert not agent.folder.exists()


@pytest.mark.parametrize("agent", ["exit"], indirect=True)
def test_nobody_outlives_an_agent_that_just_returns(agent: Agent) -> None:
    assert agent.process.stdin is not None
    agent.process.stdin.close()
    assert agent.process.wait(patience(30)) == 0
    eventually(lambda: not agent.living())


@pytest.mark.parametrize("agent", ["killed"], indirect=True)
def test_workers_die_with_the_agent_even_when_the_guard_died_first(agent: Agent) -> None:
    os.kill(agent.guard, signal.SIGKILL)
    eventually(lambda: not alive(agent.guard))
    assert {"a.worker", "b.worker"} <= agent.living(), "a guard's death touches no worker"
    agent.process.kill()
    eventually(lambda: not agent.living() & {"a.worker", "b.worker"})


@pytest.mark.parametrize("agent", ["limited"], indirect=True)
def test_an_agent_that_may_not_be_stopped_ends_with_all_that_it_started(agent: Agent) -> None:
    os.kill(agent.process.pid, signal.SIGSTOP)
    assert agent.process.wait(patience(30)) == -signal.SIGKILL
    eventually(lambda: not agent.living())
    eventually(lambda: not agent.folder.exists())


@pytest.mark.parametrize("agent", ["killed"], indirect=True)
def test_any_other_agent_may_be_stopped_and_goes_on(agent: Agent) -> None:
    os.kill(agent.process.pid, signal.SIGSTOP)
    pass_time(2)
    os.kill(agent.process.pid, signal.SIGCONT)
    assert agent.living() == EVERYBODY - {"ended.worker"}
    assert agent.process.poll() is None


BUSY_AGENT = """
import os, sys
from lattice.process.spawning import Guard
guard = Guard()
environ = {"PATH": os.environ["PATH"], "LATTICE_AGENT": sys.argv[1]}
print(flush=True)
while True:
    guard.spawn(["/bin/sh", "-c", "setsid sleep 1000 & sleep 1000"], environ, "/", None, 2, 2, "LATTICE_AGENT")
"""


def marked(marker: bytes) -> list[int]:
    return [process.pid for process in read_processes() if not process.ended and is_marked(process.pid, {marker})]


@pytest.mark.parametrize("delay", [0.0, 0.011, 0.037, 0.083, 0.15])
def test_an_agent_killed_in_the_midst_of_starting_workers_leaves_none(delay: float) -> None:
    incarnation = f"test-{uuid.uuid4()}"
    agent = subprocess.Popen(
        [sys.executable, "-c", BUSY_AGENT, incarnation], stdout=subprocess.PIPE, start_new_session=True
    )
    with agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        time.sleep(delay)  # not to wait for anything: to hit another moment each time
        children = [process.pid for process in read_processes() if process.parent == agent.pid]
        agent.kill()
    eventually(lambda: not marked(f"LATTICE_AGENT={incarnation}".encode()))
    eventually(lambda: not any(map(alive, children)))
    assert not marked(f"LATTICE_AGENT={incarnation}".encode()), "nor does one come up later"
