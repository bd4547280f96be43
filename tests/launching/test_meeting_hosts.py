"""Hosts of a launch that are different machines, this one among them: they meet where all reach each other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents import ROOT, clean_environment
from tests.lab.hosts import network
from tests.launching.transports.sshd import server
from tests.waiting import patience

pytestmark = pytest.mark.lab

GROUP = """
import json, os, sys
import lattice

def total():
    import torch, torch.distributed as dist
    one = torch.tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(one)
    return one.item(), os.environ["MASTER_ADDR"]

if __name__ == "__main__":
    hosts, config, python = sys.argv[1].split(","), sys.argv[2], sys.argv[3]
    settings = dict(ssh_config_file=config, python=python, workers_per_host=1, log_handlers=None)
    print(json.dumps(lattice.launch(total, hostnames=hosts, **settings).all()))
"""


@pytest.mark.parametrize("order", [("localhost", "far"), ("far", "localhost")], ids=["here first", "there first"])
def test_this_host_and_another_in_one_group(order: tuple[str, str], tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script, config, python = tmp_path / "group.py", tmp_path / "config", tmp_path / "python"
    script.write_text(GROUP)
    python.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}/src exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with network(2) as hosts:
        hosts.forget_own_addresses()
        here, there = hosts.names
        with server(tmp_path / "sshd", on=hosts.on(there), address=hosts.address(there)) as up:
            config.write_text(up.host_block("far"))
            command = [str(python), str(script), ",".join(order), str(config), str(python)]
            ended = subprocess.run(
                hosts.on(here, *command),
                env={**clean_environment(), "SSH_CONNECTION": "192.0.2.1 50000 192.0.2.2 22"},  # of the user's login
                capture_output=True,
                text=True,
                timeout=patience(240),
                check=False,
            )
        assert ended.returncode == 0, ended.stderr
        master = hosts.address(here if order[0] == "localhost" else there)
        assert json.loads(ended.stdout.splitlines()[-1]) == [[3.0, master]] * 2
