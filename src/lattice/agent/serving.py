"""The store of a run as one agent has it: in this process, at etcd, or served by node 0, which may be this one."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lattice.core.spec import AgentSpec, StoreSpec
from lattice.errors import StoreUnavailable, UsageError
from lattice.process.addresses import LOOPBACK, facing, is_loopback
from lattice.stores import Store, open_store, secret
from lattice.stores.located import located
from lattice.stores.memory import MemoryStore

if TYPE_CHECKING:
    from lattice.stores.served_server import StoreServer

FAREWELL = 10.0
"""seconds that a served store waits at most for the other nodes to read the outcome"""


@dataclass(slots=True)
class RunStore:
    """A store, and this node's address towards it."""

    store: Store
    spec: StoreSpec = field(default_factory=StoreSpec)
    server: StoreServer | None = None

    def address(self) -> str:
        """
        Tell under which address the other nodes reach this one: the one that packets to the store come from.

        :return: an address, or that of the loopback while no endpoint can be resolved
        """
        try:
            endpoints = located(self.spec)
        except StoreUnavailable:
            endpoints = ()
        for host, port in endpoints:
            address = facing(host, port)
            if address is not None:
                return address
        return LOOPBACK

    def linger(self, prefix: str, incarnation: str) -> None:
        """
        Keep serving until the others are gone: they still have to read how the run, or the job, ended.

        :param prefix: of the keys that say who is there
        :param incarnation: this agent's own
        """
        deadline = time.monotonic() + FAREWELL
        while time.monotonic() < deadline and self.attended(prefix, incarnation):
            time.sleep(0.02)

    def attended(self, prefix: str, incarnation: str) -> bool:
        """Tell whether this agent serves the store and others are there; parameters as in :meth:`linger`."""
        if self.server is None:
            return False
        return any(incarnation not in item.key for item in self.store.read(prefix, prefix=True).items)

    def close(self) -> None:
        """Stop serving."""
        if self.server is not None:
            self.server.close()


def open_run_store(spec: AgentSpec) -> RunStore:
    """
    Open the store that the specification names, serving it if that is this agent's part.

    :raises UsageError: the port to serve on is taken, or the certificate is none
    """
    asked = spec.store
    if asked.backend == "embedded" and asked.serve is not False:
        from lattice.stores.served_server import StoreServer  # few agents serve: the others need not load it

        host, port = asked.endpoints[0]
        store = MemoryStore()
        tls = None
        if asked.cacert:
            from lattice.stores.served_tls import server_context

            tls = server_context(asked.cert, asked.key)
        try:
            server = StoreServer(
                store, LOOPBACK if is_loopback(host) else "", port, secret(asked, spec.shared_name), tls
            )
        except UsageError:
            if asked.serve:
                raise
        else:
            return RunStore(store, asked, server)
    return RunStore(open_store(asked, spec.shared_name), asked)
