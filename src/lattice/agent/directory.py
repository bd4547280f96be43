"""A job's directory as one agent keeps it: beside the rendezvous, on a connection and a lease of its own."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from lattice.agent.conversation import ALWAYS, Conversation, EndAsked
from lattice.agent.group import Companion
from lattice.agent.serving import RunStore
from lattice.core.directory import AgentRecord, EndRecord, EntryRecord, JobKeys, JobView, changed, listing
from lattice.core.events import Event, GoodbyeAsked, Ticked
from lattice.core.keyspace import Batch, CreatedAt, Put, Transaction
from lattice.core.roles import FILE, PORT, variable_of
from lattice.core.spec import AgentSpec
from lattice.core.topology import Assignment
from lattice.errors import LatticeError, StoreRefused
from lattice.process.ports import ReservedPorts
from lattice.stores import open_store

PATIENCE = 5.0
"""seconds that the first workers wait at most until the directory has been read"""


class Directory(Conversation, Companion):
    """
    Says where this node's workers are, keeps a file of where the others are, and hears of the job's end.

    Nothing here can hold up rendezvous: it has its own connection, and only puts events.
    """

    lapsed = "the lease of this node's entry lapsed"

    def __init__(
        self,
        spec: AgentSpec,
        served: RunStore,
        incarnation: str,
        put: Callable[[Event], None],
        say: Callable[[str], None],
    ) -> None:
        # Whoever serves the store is as near to it as can be.
        store = served.store if served.server is not None else open_store(spec.store, spec.shared_name)
        super().__init__(store, spec.policy.lease_ttl, "directory")
        self._spec = spec
        self._served = served
        self._incarnation = incarnation
        self._put = put
        self._say = say
        self.keys = JobKeys(spec.job.id)
        self._own_key = self.keys.entry(spec.role, incarnation)
        self._ports = ReservedPorts(spec.workers)
        self._folder = Path(tempfile.mkdtemp(prefix="lattice-peers-"))
        self._view = JobView()
        self._missed: dict[str, EntryRecord] = {}
        self._missed_until = 0.0
        self._entry: EntryRecord | None = None
        self._published: EntryRecord | None = None
        self._dirty = True
        self._due: float | None = None
        self._to_tell: EndRecord | None = None
        self._settled = False
        self._asked: float | None = None
        self._said = ""
        self.end: EndRecord | None = None
        """how the job ended, as soon as that is known"""
        self.heard = threading.Event()
        """set when it is"""
        self._show()

    @property
    def waits(self) -> bool:
        """Tell whether workers should wait because it is not known yet who is there, and whether the job goes on."""
        if self._asked is None:
            self._asked = time.monotonic()
        return not self._settled

    def variables(self, assignment: Assignment, local_rank: int) -> Mapping[str, str]:
        """Tell a worker where the others are and where it may be found, and the others likewise."""
        if local_rank == 0:
            address = self._spec.local_addr or self._served.address()
            rank = assignment.entry.group_rank
            self._entry = EntryRecord(self._spec.role, socket.gethostname(), address, rank, self._ports.ports)
            self._orders.put((ALWAYS, self._publish))
        found = self._listing()
        named = {variable_of(role): ",".join(found[role]) for role in self._spec.job.roles}
        return {**named, FILE: str(self._folder / "peers.json"), PORT: str(self._ports.ports[local_rank])}

    def tell(self, end: EndRecord, within: float) -> bool:
        """
        End the job for all of its roles, unless it has ended.

        :param end: how it ended
        :param within: seconds
        :return: whether that is known to the store
        """
        self._to_tell = end
        self._orders.put((ALWAYS, self._tell))
        return self.heard.wait(within)

    def close(self, within: float = 3.0) -> None:
        """Take this node's entry away and end; nothing is left of its files."""

        if self._closing.is_set():
            return
        self._end(self._leave, within)
        if self._store is not self._served.store:
            self._store.close()
        self._ports.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listing(self) -> dict[str, list[str]]:
        own = {} if self._entry is None else {self._own_key: self._entry}
        return listing(self._spec.job.roles, {**self._missed, **self._view.entries, **own})

    # -- everything below runs in the directory's thread ----------------------------------------------------------

    def _run(self) -> None:
        try:
            super()._run()
        finally:
            self._settle()

    def _goes_on_after(self, error: LatticeError) -> bool:
        # Only what the session does not tell of as well.
        if isinstance(error, StoreRefused) and str(error) != self._said:
            self._said = str(error)
            self._say(f"the directory of job {self._spec.job.id!r}: {error}")
        if self._asked is not None and time.monotonic() > self._asked + PATIENCE:
            self._settle()
        return True

    def _broke(self, error: Exception) -> None:
        # The run goes on without a directory.
        self._say(f"the directory of job {self._spec.job.id!r} broke: {error!r}; please report it.")

    def _settle(self) -> None:
        if not self._settled:
            self._settled = True
            self._put(Ticked(time.monotonic()))

    def _connect(self) -> None:
        found = self._store.commit(Transaction((), read=self.keys.root))
        first, another = not self._identity, self._identity != found.identity
        if not first:
            # Those who were there may only be slower to come back: they are missed when their leases would have lapsed.
            self._missed = {**self._missed, **self._view.entries}
            self._missed_until = time.monotonic() + self._spec.policy.lease_ttl
        self._identity = found.identity
        self._view = changed(JobView(), self.keys, found.items)
        self._epoch += 1
        self._dirty = True
        self._look_for_end(first=first)
        if another or not self._lease or self._store.keep_alive(self._lease) <= 0:
            self._lease, self._published = self._store.grant(self._ttl), None
            here = AgentRecord(self._spec.role, socket.gethostname())
            self._commit(Put(self.keys.agent(self._incarnation), here.encode(), self._lease))
        self._publish()
        self._tell()
        epoch = self._epoch
        self._follow(self.keys.root, found.revision, lambda batch: self._orders.put((epoch, lambda: self._take(batch))))
        self._settle()

    def _do_what_is_due(self) -> float:
        now = time.monotonic()
        if self._missed and now >= self._missed_until:
            self._missed, self._dirty = {}, True
        if self._due is not None and now >= self._due:
            self._obey()
        if self._dirty and self._orders.empty():
            self._show()
        missed = self._missed_until if self._missed else math.inf
        return missed if self._due is None else min(missed, self._due)

    def _take(self, batch: Batch) -> None:
        self._view = changed(self._view, self.keys, batch.changes)
        self._missed = {key: entry for key, entry in self._missed.items() if key not in self._view.entries}
        self._dirty = True
        self._look_for_end()

    def _commit(self, put: Put, *guards: CreatedAt) -> bool:
        return self._store.commit(Transaction((put,), guards)).succeeded

    def _publish(self) -> None:
        entry = self._entry
        if entry is not None and entry != self._published:
            self._commit(Put(self._own_key, entry.encode(), self._lease))
            self._published, self._dirty = entry, True

    def _tell(self) -> None:
        if self._to_tell is None or self.end is not None:
            return
        lease = self._store.grant(self._spec.policy.outcome_ttl)
        if self._commit(Put(self.keys.end, self._to_tell.encode(), lease), CreatedAt(self.keys.end, 0)):
            self.end = self._to_tell
            self.heard.set()
        else:  # somebody was faster, or this is the second try: what is there will be seen
            self._store.revoke(lease)

    def _look_for_end(self, *, first: bool = False) -> None:
        if self._view.end is None or self.end is not None:
            return
        self.end = self._view.end
        self.heard.set()
        # The agents of the run that ended the job see its outcome, which says more. Who comes too late may not.
        same_run = self.end.run == self._spec.run_id and not first
        self._due = time.monotonic() + (self._spec.policy.lease_ttl if same_run else 0.0)
        if not same_run:
            self._obey()

    def _obey(self) -> None:
        """Have this agent leave, and let it be known that it needs the store no more."""
        self._put(GoodbyeAsked(time.monotonic(), signal.SIGTERM, str(self.end)))
        self._leave()

    def _leave(self) -> None:
        try:
            if self._lease:
                self._store.revoke(self._lease)
        except LatticeError:
            pass  # then it lapses
        raise EndAsked

    def _show(self) -> None:
        """Write the file anew, in one go for whoever reads it."""
        fresh = self._folder / ".peers.json"
        try:
            fresh.write_text(json.dumps(self._listing()), encoding="utf-8")
            os.replace(fresh, self._folder / "peers.json")  # noqa: PTH105 - the same, and nothing to be made
        except OSError as error:
            self._say(f"cannot write the list of peers to {self._folder}: {error.strerror}")
        self._dirty = False
