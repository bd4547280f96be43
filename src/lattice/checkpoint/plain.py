"""
Plain state as two files in open formats: ``state.json``, the tree, and ``state.safetensors``, its arrays and bytes.

A safetensors file is a length, a JSON header and the raw data; any reader of that format opens it.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any

from lattice.checkpoint.memory import Arena
from lattice.errors import UsageError

TREE, ARRAYS = "state.json", "state.safetensors"
KINDS = {
    "b1": "BOOL", "u1": "U8", "i1": "I8", "u2": "U16", "i2": "I16", "f2": "F16", "u4": "U32", "i4": "I32",
    "f4": "F32", "u8": "U64", "i8": "I64", "f8": "F64",
}  # fmt: skip
ALIGNED = 8


class Tree:
    """Takes a state apart: what JSON can say, and arrays by name."""

    def __init__(self) -> None:
        self.arrays: dict[str, tuple[str, tuple[int, ...], memoryview]] = {}
        """kind, shape and data by name"""

    def apart(self, value: Any, path: str) -> Any:
        """
        Give what JSON can say of a value.

        :raises UsageError: it is nothing that can be saved; it says where it is
        """
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"$float": str(value)}
        if isinstance(value, Mapping):
            if all(isinstance(key, str) and not key.startswith("$") for key in value):
                return {key: self.apart(item, f"{path}.{key}" if path else key) for key, item in value.items()}
            pairs = [(key, self.apart(item, f"{path}.{key}")) for key, item in value.items()]
            return {"$items": [[self.apart(key, f"{path} (a key)"), item] for key, item in pairs]}
        if isinstance(value, list):
            return [self.apart(item, f"{path}.{number}") for number, item in enumerate(value)]
        if isinstance(value, tuple):
            return {"$tuple": [self.apart(item, f"{path}.{number}") for number, item in enumerate(value)]}
        if isinstance(value, bytes | bytearray):
            return {"$bytes": self._named(path, "U8", (len(value),), memoryview(value))}
        return self._array(value, path)

    def _array(self, value: Any, path: str) -> Any:
        numpy = sys.modules.get("numpy")
        if numpy is None or not isinstance(value, numpy.ndarray | numpy.generic) or value.dtype.hasobject:
            raise UsageError(
                f"the state has a {type(value).__name__} at {path or 'the top'}, which cannot be saved: give numbers, "
                "text, bytes, lists, tuples, dicts, numpy arrays, or a state with torch tensors."
            )
        plain = numpy.ascontiguousarray(value)
        kind = KINDS.get(plain.dtype.str[1:], "") if plain.dtype.isnative else ""
        data = memoryview(plain.reshape(-1).view(numpy.uint8)) if plain.size else memoryview(b"")
        told: dict[str, Any] = {}
        if kind:
            told["$array"] = self._named(path, kind, value.shape, data)
        else:  # a type that the format does not have
            name = self._named(path, "U8", (len(data),), data)
            told = {"$array": name, "dtype": numpy.lib.format.dtype_to_descr(plain.dtype), "shape": list(value.shape)}
        return {**told, "scalar": True} if isinstance(value, numpy.generic) else told

    def _named(self, path: str, kind: str, shape: tuple[int, ...], data: memoryview) -> str:
        name, again = path or "state", 0
        while name in self.arrays:  # keys 1 and "1"
            again += 1
            name = f"{path}#{again}"
        self.arrays[name] = (kind, shape, data)
        return name


def save(state: Any, arena: Arena) -> None:
    """
    Write a state.

    :raises UsageError: something in it cannot be saved
    """
    tree = Tree()
    told = json.dumps(tree.apart(state, "")).encode()
    header: dict[str, Any] = {}
    at = 0
    for name, (kind, shape, data) in tree.arrays.items():
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % ALIGNED)
    arena.reserve(at + 2 * len(head) + len(told) + (1 << 20))
    arena.begin(ARRAYS)
    arena.write(struct.pack("<Q", len(head)) + head)
    for _, _, data in tree.arrays.values():
        arena.write(data)
    arena.begin(TREE)
    arena.write(told)


def load(read: Callable[[str], memoryview]) -> Any:
    """
    Read a state.

    :param read: gives what is in a file
    """
    raw = read(ARRAYS)
    (length,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(bytes(raw[8 : 8 + length])), raw[8 + length :]

    def part(name: str) -> memoryview:
        first, last = header[name]["data_offsets"]
        return data[first:last]

    def together(told: Any) -> Any:
        if isinstance(told, list):
            return [together(item) for item in told]
        if not isinstance(told, dict):
            return told
        if "$float" in told:
            return float(told["$float"])
        if "$items" in told:
            return {together(key): together(item) for key, item in told["$items"]}
        if "$tuple" in told:
            return tuple(together(item) for item in told["$tuple"])
        if "$bytes" in told:
            return bytes(part(told["$bytes"]))
        if "$array" in told:
            return _array(told, header[told["$array"]], part(told["$array"]))
        return {key: together(item) for key, item in told.items()}

    return together(json.loads(bytes(read(TREE))))


def _array(told: dict[str, Any], listed: dict[str, Any], data: memoryview) -> Any:
    import numpy

    if "dtype" in told:
        kind, shape = numpy.lib.format.descr_to_dtype(told["dtype"]), told["shape"]
    else:
        kind = numpy.dtype(next(name for name, value in KINDS.items() if value == listed["dtype"]))
        shape = listed["shape"]
    found = numpy.frombuffer(data, dtype=kind).reshape(shape).copy()
    return found[()] if told.get("scalar") else found
