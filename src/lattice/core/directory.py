"""What the agents of a job tell each other beside the rendezvous of their runs: who can be reached, and its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Self, TypeVar

from lattice.core.dataclass import dataclass, replace
from lattice.core.keyspace import KeyValue, Removed
from lattice.core.records import Keys, Record, WrongRecordError

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class JobKeys:
    """The keys of one job."""

    job_id: str
    root: str = field(init=False)
    """the prefix that every agent of the job watches"""
    roles: str = field(init=False)
    """the prefix of the entries"""
    end: str = field(init=False)
    """whoever creates it ends the job"""
    agents: str = field(init=False)
    """the prefix of one key per agent; not below the root, for nobody follows them. No id is spelled with ``%a``."""

    def __post_init__(self) -> None:
        root = Keys(self.job_id).root
        agents = root.replace("/lattice/", "/lattice/%agents/", 1)
        for name, value in {"root": root, "roles": f"{root}roles/", "end": f"{root}end", "agents": agents}.items():
            object.__setattr__(self, name, value)

    def entry(self, role: str, incarnation: str) -> str:
        """Give the key of one node's entry."""
        return f"{self.roles}{role}/{incarnation}"

    def agent(self, incarnation: str) -> str:
        """Give the key that says that an agent is there."""
        return f"{self.agents}{incarnation}"


@dataclass(frozen=True, slots=True)
class EntryRecord(Record):
    """Where the workers of one node can be reached."""

    role: str
    host: str
    address: str
    node: int | None
    """the node's group rank in its run"""
    ports: tuple[int, ...]
    """one for each local worker"""

    @classmethod
    def _build(cls, fields: dict[str, Any]) -> Self:
        node = fields["node"]
        return cls(
            str(fields["role"]),
            str(fields["host"]),
            str(fields["address"]),
            None if node is None else int(node),
            tuple(int(port) for port in fields["ports"]),
        )

    @property
    def places(self) -> list[str]:
        """Give the workers' addresses with their ports."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return [f"{host}:{port}" for port in self.ports]


@dataclass(frozen=True, slots=True)
class AgentRecord(Record):
    """An agent of the job is there, whether its workers run or not."""

    role: str
    host: str


@dataclass(frozen=True, slots=True)
class EndRecord(Record):
    """The job has ended."""

    role: str
    """of the agent that told of it"""
    run: str
    """the run that ended it: roles of one group share it, and those of ``group: each`` have several"""
    status: int
    reason: str = ""
    """why that failed"""

    def __str__(self) -> str:
        how = "failed" if self.status else "succeeded"
        return f"the job ended: role {self.role} {how}" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True, slots=True)
class JobView:
    """What is known of a job."""

    entries: Mapping[str, EntryRecord] = field(default_factory=dict)
    """by key"""
    end: EndRecord | None = None


def changed(view: JobView, keys: JobKeys, changes: Iterable[KeyValue | Removed]) -> JobView:
    """
    Give the view after some changes. What cannot be read counts as not there.

    :param changes: anything below the job's root; a run of the same id has keys there, too
    """
    entries, end = dict(view.entries), view.end
    for change in changes:
        if change.key == keys.end:
            end = _read(EndRecord, change)
        elif change.key.startswith(keys.roles):
            entry = _read(EntryRecord, change)
            if entry is not None:
                entries[change.key] = entry
            else:
                entries.pop(change.key, None)
    return replace(view, entries=entries, end=end)


def _read(kind: type[R], change: KeyValue | Removed) -> R | None:
    if isinstance(change, Removed):
        return None
    try:
        return kind.decode(change.value)
    except WrongRecordError:
        return None


def listing(roles: Iterable[str], entries: Mapping[str, EntryRecord]) -> dict[str, list[str]]:
    """
    Give the addresses of all workers by role, in the order of their nodes' ranks.

    :param roles: those that are listed even if nobody is there
    """
    found: dict[str, list[str]] = {role: [] for role in roles}
    for _, entry in sorted(entries.items(), key=lambda item: (item[1].node is None, item[1].node or 0, item[0])):
        found.setdefault(entry.role, []).extend(entry.places)
    return found
