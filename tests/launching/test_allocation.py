"""``lattice.launch`` inside a real SLURM allocation, from its first node: what connects, what is seen, what is left."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lattice.process.guard import read_processes
from tests.agents import ROOT, alive
from tests.lab.slurm import Cluster, cluster
from tests.launching.staying import Families
from tests.waiting import eventually, patience

pytestmark = pytest.mark.lab
WITHIN = 180.0


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    with cluster(2) as up:
        up.network.forget_own_addresses()
        yield up


def started(slurm: Cluster, script: Path, *arguments: str) -> subprocess.Popen[str]:
    """Run a script as a job's own one runs, on the first node of its allocation."""
    return subprocess.Popen(
        slurm.network.on(slurm.nodes[0], sys.executable, str(script), *arguments),
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("SLURM")},
            **slurm.variables(),
            "SLURMD_NODENAME": slurm.nodes[0],
            "SSH_CONNECTION": "192.0.2.1 50000 192.0.2.2 22",  # of the login that the job came from
            "PYTHONPATH": f"{ROOT}/src:{ROOT}",
            "OF_MINE": "not-for-others",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(launcher: subprocess.Popen[str]) -> Any:
    """Wait for the end, and read what was printed last."""
    try:
        said, errors = launcher.communicate(timeout=patience(WITHIN))
    finally:
        launcher.kill()
        launcher.communicate()
    assert launcher.returncode == 0, errors
    assert "no connection back" not in errors
    return json.loads(said.splitlines()[-1])


GROUP = """
import json, os, socket
import lattice

def total():
    import torch, torch.distributed as dist
    one = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(one)
    names = ("MASTER_ADDR", "GLOO_SOCKET_IFNAME")
    return one.item(), socket.gethostname(), socket.gethostbyname(socket.gethostname()), *map(os.environ.get, names)

if __name__ == "__main__":
    print(json.dumps(lattice.launch(total, workers_per_host=1, log_handlers=None).all()))
"""


def test_hosts_meet_although_their_names_lead_to_the_loopback(slurm: Cluster, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "group.py"
    script.write_text(GROUP)
    first = slurm.network.address(slurm.nodes[0])
    expected = [[3.0, name, "127.0.1.1", first, "eth0"] for name in slurm.nodes]
    assert answer(started(slurm, script)) == expected


LOOK = """
import json, os
from pathlib import Path
import lattice
from lattice.launching.reception import Reception

offers, offer = [], Reception.offer

def noted(self, addresses):
    offers.append(offer(self, addresses))
    return offers[-1]

def commands():
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().decode(errors="replace"))
        except OSError:
            pass
    return os.environ["OF_MINE"], found

if __name__ == "__main__":
    Reception.offer = noted
    settings = dict(workers_per_host=1, backend=None, framework="generic", log_handlers=None)
    with lattice.Launcher(extra_env_vars=("OF_MINE",), **settings) as pool:
        found = pool.run(commands).all()
        print(json.dumps([found, offers, [node.facts.get("insecure") for node in pool._crew.nodes]]))
"""


def test_no_secret_is_in_a_list_of_processes_and_ports_are_those_of_slurm(slurm: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "look.py"
    script.write_text(LOOK)
    found, offers, insecure = answer(started(slurm, script))
    assert insecure == [None, ""], "the first is here, the second called back"
    for variable, commands in found:
        assert variable == "not-for-others"
        assert any("lattice.launching.node" in command for command in commands), "or nothing was looked at"
        # Containers of the lab, which other tests may have at this moment, have numbers of that length.
        names = [(command, command.replace("lattice-lab", "")) for command in commands]
        ours = [command for command, name in names if str(script) in name or "lattice" in name or "srun" in name]
        assert not [command for command in ours if "not-for-others" in command or re.search("[0-9a-f]{32}", command)]
    ((address, port),) = offers[0]["addresses"]
    assert address == slurm.network.address(slurm.nodes[0])
    assert 61001 <= port <= 62000


STAY = """
import json, sys
import lattice
from tests.launching.staying import stay

settings = dict(workers_per_host=1, backend=None, framework="generic", log_handlers=None)
try:
    lattice.launch(stay, (sys.argv[1],), **settings)
except lattice.AgentFailedError as error:
    print(json.dumps([error.host, str(error)]))
"""


def srun_of(launcher: subprocess.Popen[str]) -> int:
    (found,) = (
        process.pid
        for process in read_processes()
        if process.parent == launcher.pid and Path(f"/proc/{process.pid}/cmdline").read_bytes().startswith(b"srun\0")
    )
    return found


def kill_srun(slurm: Cluster, launcher: subprocess.Popen[str]) -> None:
    os.kill(srun_of(launcher), signal.SIGKILL)


def cancel_step(slurm: Cluster, launcher: subprocess.Popen[str]) -> None:
    numbered = [name.split(".") for name in slurm.client("squeue", "-h", "-s", "-o", "%i").split()]
    # The newest: that of an earlier test, whose srun was killed, may be listed a moment longer.
    job, step = max(((job, step) for job, step in numbered if step.isdecimal()), key=lambda one: int(one[1]))
    slurm.client("scancel", f"{job}.{step}")


def kill_launcher(slurm: Cluster, launcher: subprocess.Popen[str]) -> None:
    os.kill(launcher.pid, signal.SIGKILL)


@pytest.mark.parametrize("end", [kill_srun, cancel_step, kill_launcher])
def test_whatever_ends_it_nothing_is_left_and_the_right_host_is_named(
    end: Callable[[Cluster, subprocess.Popen[str]], None], slurm: Cluster, tmp_path: Path
) -> None:
    script = tmp_path / "stay.py"
    script.write_text(STAY)
    families = Families(tmp_path / "families")
    families.folder.mkdir()
    launcher = started(slurm, script, str(families.folder))
    try:
        families.pids(2)
        srun = srun_of(launcher)
        end(slurm, launcher)
        if end is not kill_launcher:
            host, said = answer(launcher)
            assert host == slurm.nodes[1]
            assert "ended unexpectedly, or its connection did" in said
            assert end is not cancel_step or "CANCELLED" in said, "in SLURM's own words"
        families.gone(2)
        eventually(lambda: not alive(srun))
    finally:
        launcher.kill()
        launcher.communicate()
