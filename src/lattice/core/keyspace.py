"""What a store holds and how it is changed, as values: keys with revisions, transactions, watch batches."""

from __future__ import annotations

from dataclasses import field

from lattice.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key as a store knows it."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Put:
    """Write a key, bound to a lease unless that is 0."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove one key, or everything that begins with it."""

    key: str
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class CreatedAt:
    """Holds if the key was created at this revision; revision 0 means that the key does not exist."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class ModifiedAt:
    """Holds if the key was last written at this revision; revision 0 means that the key does not exist."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """All operations, in order and at one revision, if every comparison holds; otherwise nothing."""

    operations: tuple[Put | Delete, ...]
    guards: tuple[CreatedAt | ModifiedAt, ...] = ()
    read: str = ""
    """a prefix to read in the same moment, after the operations, whether the comparisons hold or not"""


@dataclass(frozen=True, slots=True)
class Commit:
    """The answer to a transaction: whether its guards held, and what was read."""

    succeeded: bool
    revision: int
    """at which it was applied; the store's own if nothing was changed"""
    items: tuple[KeyValue, ...] = ()
    identity: str = field(default="", compare=False)
    """the name of the data that was read, as :meth:`Store.identity` gives it; empty if nothing was to be read"""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was read, in key order, and the store's revision at that moment."""

    items: tuple[KeyValue, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class Removed:
    """A key that went away: deleted, or its lease lapsed or was revoked."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes below a watched prefix, in order; every change of one revision is in one batch."""

    changes: tuple[KeyValue | Removed, ...]
    revision: int
