"""What a phase cost: etcd's own counters, and the processor time of etcd, the leader and the other agents."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.processes import cpu_seconds

_SAMPLE = re.compile(r"^(\w+)(\{[^}]*\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
BYTES_OUT = "etcd_network_client_grpc_sent_bytes_total"
BYTES_IN = "etcd_network_client_grpc_received_bytes_total"
PROPOSALS = "etcd_server_proposals_applied_total"
KEEPALIVE = "LeaseKeepAlive"


@dataclass(frozen=True, slots=True)
class Reading:
    """All meters at one moment, or what they rose by between two."""

    requests: Mapping[str, float]
    """calls that clients began, by method; a watch is one"""
    events: float
    """messages that etcd sent on watches"""
    proposals: float
    """what went through etcd's log: writes, leases made and ended"""
    received: float
    """bytes that came to etcd from clients"""
    sent: float
    """bytes that etcd sent to clients"""
    etcd_cpu: float
    leader_cpu: float
    agents_cpu: float
    """of all other agents"""

    def since(self, before: Reading) -> Reading:
        """Tell how much they rose."""
        methods = {name: count - before.requests.get(name, 0) for name, count in self.requests.items()}
        return Reading(
            {name: count for name, count in methods.items() if count},
            self.events - before.events,
            self.proposals - before.proposals,
            self.received - before.received,
            self.sent - before.sent,
            self.etcd_cpu - before.etcd_cpu,
            self.leader_cpu - before.leader_cpu,
            self.agents_cpu - before.agents_cpu,
        )

    @property
    def calls(self) -> float:
        """Count the calls without keepalives, which go on whatever happens."""
        return sum(count for name, count in self.requests.items() if name != KEEPALIVE)


def read(endpoint: str, etcd: int, leader: int, agents: list[int]) -> Reading:
    """
    Read all meters.

    :param endpoint: etcd's address
    :param etcd: its process
    :param leader: the process in which the agent that leads is alone
    :param agents: the processes of the others
    """
    with urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=30) as answer:
        samples = _SAMPLE.findall(answer.read().decode())
    requests: dict[str, float] = {}
    totals: dict[str, float] = {}
    events = 0.0
    for name, labels, value in samples:
        if name in (BYTES_IN, BYTES_OUT, PROPOSALS):
            totals[name] = float(value)
        elif name.startswith("grpc_server_"):
            method = dict(_LABEL.findall(labels)).get("grpc_method", "")
            if name == "grpc_server_started_total":
                requests[method] = requests.get(method, 0) + float(value)
            elif name == "grpc_server_msg_sent_total" and method == "Watch":
                events += float(value)
    used = cpu_seconds([etcd, leader, *agents])
    return Reading(
        requests,
        events,
        totals.get(PROPOSALS, 0),
        totals.get(BYTES_IN, 0),
        totals.get(BYTES_OUT, 0),
        used.get(etcd, 0.0),
        used.get(leader, 0.0),
        sum(used.get(pid, 0.0) for pid in agents),
    )
