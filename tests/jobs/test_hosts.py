"""Where the nodes of a job meet, as their hosts say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from lattice.core import addresses
from lattice.core.spec import NodeRange
from lattice.jobs.archive import Archive
from lattice.jobs.backends.hosts import HostsBackend
from lattice.jobs.calls import Here
from lattice.jobs.index import new_record
from lattice.jobs.job import Code, Job
from lattice.jobs.node import own_address
from lattice.launching.hosts import HostSpec


class Answering(Here):
    """Hosts that say where they are, as they would after a login."""

    def ask(self, host: HostSpec, request: Mapping[str, Any], body: Archive | None = None) -> dict[str, Any]:
        assert request["do"] == "reserve"
        return {"address": own_address(), "port": 45031}


@pytest.mark.parametrize("address", ["::1", "fe80::1%eth0", "10.0.0.7"])
def test_an_address_of_any_family_can_be_read_again(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", f"{address} 50000 {address} 22")
    record = replace(new_record(Job("try", "ssh", NodeRange(1, 1), Code("train.py"))), hosts={0: "node1"})
    backend = HostsBackend("ssh", lambda _: ["node1"], lambda _: Answering())
    met = backend._meet(record, lambda _: None)
    assert addresses.endpoint(met.facts["endpoint"]) == (address, 45031)
