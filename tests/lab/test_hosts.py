"""The lab itself: hosts see each other by name, a cut is silent and heals, nothing is left."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.hosts import Network, network
from tests.waiting import patience

pytestmark = pytest.mark.lab

# A closed port refuses at once; only a cut path lets the time run out.
PROBE = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9), timeout=float(sys.argv[2]))
except ConnectionRefusedError:
    print("reached")
except TimeoutError:
    print("cut off")
"""


def probe(hosts: Network, source: str, target: str, timeout: float = 10) -> str:
    argv = hosts.on(source, sys.executable, "-c", PROBE, target, str(timeout))
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=patience(30)).stdout.strip()


def test_hosts_have_names_and_reach_each_other_until_they_are_cut() -> None:
    with network(3) as hosts:
        one, two, three = hosts.names
        said = subprocess.run(hosts.on(two, "hostname"), capture_output=True, text=True, check=True).stdout
        assert said.strip() == two
        assert probe(hosts, one, two) == "reached"
        hosts.partition(two, three)
        assert probe(hosts, two, three) == "reached"
        assert probe(hosts, one, two, timeout=1) == "cut off"
        hosts.heal()
        assert probe(hosts, one, two) == "reached"


def test_two_networks_at_once_and_nothing_left_of_either() -> None:
    with network(1) as first, network(2) as second:
        left = subprocess.Popen(second.on(second.names[1], "sleep", "300"), stdout=subprocess.PIPE)
        assert not set(first.names) & set(second.names)
    assert left.wait(timeout=patience(10)) != 0
    assert left.stdout is not None
    left.stdout.close()
    assert not list(Path("/etc/netns").glob(f"{second.names[0]}*"))
