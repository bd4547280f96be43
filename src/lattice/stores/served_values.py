"""
What the frames of the served store say, as JSON.

A request is ``{"id": 1, "call": NAME, "args": [...]}`` and its answer ``{"id": 1, "result": ...}`` or ``{"id": 1,
"error": CLASS, "text": ...}``. A watch has an id that the client chose; the server sends ``{"watch": 1, "batch":
...}`` for it, or ``{"watch": 1, "error": CLASS, "text": ...}`` as the last thing. Values are base64.
"""

from __future__ import annotations

import json
from binascii import a2b_base64, b2a_base64
from typing import Any

from lattice.core.keyspace import (
    Batch,
    Commit,
    CreatedAt,
    Delete,
    KeyValue,
    ModifiedAt,
    Put,
    Removed,
    Snapshot,
    Transaction,
)
from lattice.errors import Compacted, LatticeError, StoreRefused, StoreUnavailable

_ERRORS: dict[str, type[LatticeError]] = {
    error.__name__: error for error in (StoreUnavailable, StoreRefused, Compacted)
}


def dump(message: dict[str, Any]) -> bytes:
    """Make a body."""
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()


def load(body: bytes) -> dict[str, Any]:
    """
    Read a body.

    :raises ValueError: if it is none
    """
    message = json.loads(body)
    if not isinstance(message, dict):
        raise ValueError("a message is an object")
    return message


def dump_error(error: LatticeError) -> dict[str, str]:
    """Describe an error."""
    return {"error": type(error).__name__, "text": str(error)}


def load_error(message: dict[str, Any]) -> LatticeError:
    """Read the error in a message."""
    return _ERRORS.get(str(message["error"]), StoreUnavailable)(str(message["text"]))


def dump_transaction(transaction: Transaction) -> list[Any]:
    """Describe a transaction: operations, then guards, then what is to be read, if anything is."""
    operations: list[list[Any]] = []
    for operation in transaction.operations:
        if isinstance(operation, Put):
            operations.append(["put", operation.key, _text(operation.value), operation.lease])
        else:
            operations.append(["delete", operation.key, operation.prefix])
    guards = [
        ["created" if isinstance(guard, CreatedAt) else "modified", guard.key, guard.revision]
        for guard in transaction.guards
    ]
    return [operations, guards, transaction.read] if transaction.read else [operations, guards]


def load_transaction(described: Any) -> Transaction:
    """Read a transaction; raises ValueError, TypeError or LookupError if it is none."""
    operations: list[Put | Delete] = []
    for name, key, *rest in described[0]:
        if name == "put":
            value, lease = rest
            operations.append(Put(str(key), _bytes(value), int(lease)))
        elif name == "delete":
            (prefix,) = rest
            operations.append(Delete(str(key), bool(prefix)))
        else:
            raise ValueError(f"no such operation: {name}")
    kinds: dict[str, type[CreatedAt | ModifiedAt]] = {"created": CreatedAt, "modified": ModifiedAt}
    guards = [kinds[name](str(key), int(revision)) for name, key, revision in described[1]]
    return Transaction(tuple(operations), tuple(guards), *described[2:])


def dump_commit(commit: Commit) -> list[Any]:
    """Describe the answer to a transaction."""
    return [commit.succeeded, commit.revision, [_dump_change(item) for item in commit.items]]


def load_commit(described: Any) -> Commit:
    """Read the answer to a transaction."""
    succeeded, revision, items = described
    return Commit(bool(succeeded), int(revision), tuple([_load_item(item) for item in items]))


def dump_snapshot(snapshot: Snapshot) -> list[Any]:
    """Describe what was read."""
    return [[_dump_change(item) for item in snapshot.items], snapshot.revision]


def load_snapshot(described: Any) -> Snapshot:
    """Read what was read."""
    items, revision = described
    return Snapshot(tuple([_load_item(item) for item in items]), int(revision))


def dump_batch(batch: Batch) -> list[Any]:
    """Describe a batch of changes."""
    return [[_dump_change(change) for change in batch.changes], batch.revision]


def load_batch(described: Any) -> Batch:
    """Read a batch of changes."""
    changes, revision = described
    return Batch(
        tuple([Removed(str(row[0]), int(row[1])) if len(row) == 2 else _load_item(row) for row in changes]),
        int(revision),
    )


def _dump_change(change: KeyValue | Removed) -> list[Any]:
    if isinstance(change, Removed):
        return [change.key, change.revision]
    return [change.key, _text(change.value), change.create_revision, change.mod_revision, change.lease]


def _load_item(row: Any) -> KeyValue:
    key, value, created, modified, lease = row
    return KeyValue(str(key), _bytes(value), int(created), int(modified), int(lease))


def _text(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode()


def _bytes(text: Any) -> bytes:
    return a2b_base64(text.encode())
