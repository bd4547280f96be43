"""The store of a run as one agent has it: in this process, at etcd, or served by node 0, which may be this one."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lattice.core.records import Keys
from lattice.core.spec import AgentSpec
from lattice.errors import UsageError
from lattice.stores import Store, open_store, secret
from lattice.stores.memory import MemoryStore

if TYPE_CHECKING:
    from lattice.stores.served_server import StoreServer

FAREWELL = 10.0
"""seconds that a served store waits at most for the other nodes to read the outcome"""
LOOPBACK = "127.0.0.1"


@dataclass(slots=True)
class RunStore:
    """A store, and this node's address towards it."""

    store: Store
    endpoints: tuple[tuple[str, int], ...] = ()
    server: StoreServer | None = None

    def address(self) -> str:
        """
        Tell under which address the other nodes reach this one: the one that packets to the store come from.

        :return: an address, or that of the loopback while no endpoint can be resolved
        """
        for host, port in self.endpoints:
            try:
                family, kind, protocol, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
                with socket.socket(family, kind, protocol) as probe:
                    probe.connect(target)  # a datagram socket sends nothing here
                    return str(probe.getsockname()[0])
            except OSError:
                continue
        return LOOPBACK

    def linger(self, keys: Keys, incarnation: str) -> None:
        """Keep serving until the other nodes are gone: they still have to read how the run ended."""
        if self.server is None:
            return
        deadline = time.monotonic() + FAREWELL
        while time.monotonic() < deadline:
            others = [item for item in self.store.read(keys.nodes, prefix=True).items if incarnation not in item.key]
            if not others:
                return
            time.sleep(0.02)

    def close(self) -> None:
        """Stop serving."""
        if self.server is not None:
            self.server.close()


def open_run_store(spec: AgentSpec) -> RunStore:
    """
    Open the store that the specification names, serving it if that is this agent's part.

    :raises UsageError: the port to serve on is taken
    """
    asked = spec.store
    if asked.backend == "embedded" and asked.serve is not False:
        from lattice.stores.served_server import StoreServer  # few agents serve: the others need not load it

        host, port = asked.endpoints[0]
        store = MemoryStore()
        try:
            server = StoreServer(store, LOOPBACK if is_loopback(host) else "", port, secret(asked, spec.run_id))
        except UsageError:
            if asked.serve:
                raise
        else:
            return RunStore(store, asked.endpoints, server)
    return RunStore(open_store(asked, spec.run_id), asked.endpoints)


def is_loopback(host: str) -> bool:
    """
    Tell whether an endpoint is meant for this machine alone.

    By its spelling: a machine's own name often resolves to a loopback address on that machine, and only there.
    """
    return host in ("localhost", "::1") or host.startswith("127.")
