"""The srun transport: its command line and variables, and steps of a real SLURM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lattice.launching.hosts import HostSpec, resolve
from lattice.launching.slurm import expand
from lattice.launching.transports import NodeProcess, transport
from lattice.launching.transports.srun import arguments, variables
from lattice.process.guard import read_processes
from tests.lab.slurm import Cluster, cluster
from tests.launching.transports.stream import (
    ECHO,
    alive,
    ended,
    gone,
    greeted,
    host,
    read_exactly,
    there_and_back,
    verdict,
)
from tests.waiting import patience

WAITS = (sys.executable, "-c", "import os, sys\nos.write(1, b'%9d' % os.getpid())\nsys.stdin.read()")


def test_the_command_line_says_where_and_what_and_nothing_else() -> None:
    words = arguments("srun", "n1", ("python", "-m", "x y"))
    assert words[0] == "srun"
    assert words[-5:] == ("--nodelist=n1", "--", "python", "-m", "x y")
    assert {"--overlap", "--nodes=1", "--ntasks=1", "--unbuffered"} < set(words)


def test_options_of_the_job_are_not_those_of_the_step() -> None:
    kept = {"SLURM_JOB_ID": "7", "SLURM_CONF": "/c", "PATH": "/bin", "MINE": "1"}
    taken = {
        "SLURM_GPUS_PER_TASK": "1",
        "SLURM_NTASKS": "8",
        "SLURM_CPU_BIND": "x",
        "SLURMD_NODENAME": "n",
        "PMI_RANK": "0",
    }
    assert variables({**kept, **taken}) == kept


@pytest.fixture(scope="module")
def slurm() -> Iterator[Cluster]:
    with cluster(2) as up:
        yield up


@pytest.mark.lab
class TestRealSlurm:
    @pytest.fixture(autouse=True)
    def nodes(self, slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[HostSpec, ...]:
        slurm.install_client(tmp_path)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        for name, value in slurm.variables().items():
            monkeypatch.setenv(name, value)
        return resolve("auto", "auto", os.environ)

    def start(self, node: HostSpec, *program: str) -> NodeProcess:
        return transport("srun", program).start(node)

    def test_lists_are_written_out_as_slurm_does(self, slurm: Cluster) -> None:
        for nodes in ("n[08-11,3],m", "r[0-1]n[1-2]", "a", "n[098-101]"):
            assert expand(nodes) == tuple(slurm.client("scontrol", "show", "hostnames", nodes).split())

    def test_a_node_on_each_host_and_any_bytes(self, slurm: Cluster, nodes: tuple[HostSpec, ...]) -> None:
        assert [(one.given, one.workers, one.transport) for one in nodes] == [(name, 2, "srun") for name in slurm.nodes]
        says_where = (
            "import os, socket\nprint(socket.gethostname(), os.environ['SLURM_JOB_ID'], os.environ['SLURM_NTASKS'])"
        )
        both = [self.start(node, sys.executable, "-c", says_where) for node in nodes]
        said = [read_exactly(one, 10000).decode() for one in both]
        for one in both:
            one.kill()
        assert said == [f"{name} {slurm.job} 1\n" for name in slurm.nodes]
        process = self.start(nodes[1], *ECHO)
        try:
            assert greeted(process)
            there_and_back(process, bytes(range(256)))  # no end of a line: nothing may wait for one
            there_and_back(process, bytes(range(256)) * 20_000)
        finally:
            process.kill()

    def test_killed_it_takes_the_far_end_along(self, nodes: tuple[HostSpec, ...]) -> None:
        process = self.start(nodes[1], *WAITS)
        pid = int(read_exactly(process, 9))
        assert alive(pid)
        process.kill()
        gone(pid)

    def test_a_killed_srun_is_seen_and_takes_the_far_end_along(self, nodes: tuple[HostSpec, ...]) -> None:
        process = self.start(nodes[1], *WAITS)
        pid = int(read_exactly(process, 9))
        (srun,) = (
            child.pid
            for child in read_processes()
            if child.parent == os.getpid() and Path(f"/proc/{child.pid}/cmdline").read_bytes().startswith(b"srun\0")
        )
        os.kill(srun, signal.SIGKILL)
        assert ended(process) == -signal.SIGKILL
        gone(pid)
        process.kill()

    def test_a_killed_launcher_leaves_nothing(self, nodes: tuple[HostSpec, ...]) -> None:
        script = (
            "import os, sys\n"
            "from tests.launching.transports.test_srun import WAITS, host, transport\n"
            "process = transport('srun', WAITS).start(host(sys.argv[1], 'srun'))\n"
            "print(os.read(process.stdout, 9).decode(), flush=True)\n"
            "os.kill(os.getpid(), 9)"
        )
        said = subprocess.run(
            [sys.executable, "-c", script, nodes[1].given],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=False,
            timeout=patience(60),
        )
        assert said.returncode == -signal.SIGKILL, said.stderr
        gone(int(said.stdout))

    def test_what_is_wrong(self, slurm: Cluster, nodes: tuple[HostSpec, ...], monkeypatch: pytest.MonkeyPatch) -> None:
        here = nodes[1]
        assert f"{here.given}: /no/such/python cannot be executed there (No such file" in verdict(
            self.start(here, "/no/such/python", "-m", "x")
        )
        assert "has no Lattice (No module named 'lattice')" in verdict(
            self.start(here, sys.executable, "-I", "-S", "-m", "lattice.launching.node")
        )
        assert f"elsewhere: SLURM job {slurm.job} has no node of that name" in verdict(
            self.start(host("elsewhere", "srun"), *ECHO)
        )
        monkeypatch.setenv("SLURM_JOB_ID", "999")
        assert "SLURM job 999 is over" in verdict(self.start(here, *ECHO))
        monkeypatch.setenv("PATH", "/nowhere")
        assert "there is no program 'srun' on this machine" in verdict(self.start(here, *ECHO))
