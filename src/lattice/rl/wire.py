"""
Messages between learner and workers: a header in JSON, and arrays as they are in memory. Nothing is ever unpickled.

A message is a list of frames. The first is the header, an object with ``kind`` and, for each further frame, its name,
type and shape under ``arrays``. Whatever does not fit exactly is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lattice.rl.interfaces import Array, Arrays

ARRAYS = "arrays"
KIND = "kind"
MOST_HEADER = 1 << 20
"""bytes of a header, at most"""
MOST_ARRAYS = 10_000
MOST_DIMENSIONS = 32
KINDS = "biufc"
"""numpy's letters for types without pointers: truth values, integers, floats, complex numbers"""

Frame = bytes | memoryview


class BadMessage(ValueError):
    """A message that is none; whoever sent it is not of this program, or means harm."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)

    def text(self, name: str, longest: int = 256) -> str:
        """Read a text of the header."""
        found = self.fields.get(name)
        if not isinstance(found, str) or len(found) > longest:
            raise BadMessage(f"{self.kind}: {name} is no text of at most {longest} characters")
        return found

    def count(self, name: str) -> int:
        """Read a number from 0 of the header."""
        found = self.fields.get(name)
        if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 1 << 62:
            raise BadMessage(f"{self.kind}: {name} is no whole number from 0")
        return found

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        """Read an object of the header, if it is there."""
        found = self.fields.get(name)
        if found is not None and not isinstance(found, dict):
            raise BadMessage(f"{self.kind}: {name} is no object")
        return found


def encode(message: Message) -> list[Frame]:
    """Write a message; arrays are copied only if they are not in one piece."""
    listed, frames = [], []
    for name, array in message.arrays.items():
        plain = _little(array)
        listed.append([name, plain.dtype.str, list(plain.shape)])
        frames.append(plain.reshape(-1).view(np.uint8).data if plain.size else b"")
    header = {**message.fields, KIND: message.kind, ARRAYS: listed}
    return [json.dumps(header, separators=(",", ":"), allow_nan=True).encode(), *frames]


def decode(frames: Sequence[Frame]) -> Message:
    """
    Read a message; its arrays share the memory of the frames, and cannot be written to.

    :raises BadMessage: it is none
    """
    if not frames or len(frames[0]) > MOST_HEADER:
        raise BadMessage("no header, or one that is too long")
    try:
        header = json.loads(bytes(frames[0]))
    except (ValueError, RecursionError):
        raise BadMessage("the header is no JSON") from None
    if not isinstance(header, dict):
        raise BadMessage("the header is no object")
    kind, listed = header.pop(KIND, None), header.pop(ARRAYS, None)
    if not isinstance(kind, str) or not isinstance(listed, list) or len(listed) > MOST_ARRAYS:
        raise BadMessage("the header lacks kind or arrays")
    if len(listed) != len(frames) - 1:
        raise BadMessage(f"{len(listed)} arrays are named, and {len(frames) - 1} came")
    arrays = dict(_array(told, frame) for told, frame in zip(listed, frames[1:], strict=True))
    if len(arrays) != len(listed):
        raise BadMessage("two arrays have the same name")
    return Message(kind, header, arrays)


def _array(told: Any, frame: Frame) -> tuple[str, Array]:
    match told:
        case [str(name), str(type_name), list(shape)] if len(shape) <= MOST_DIMENSIONS:
            pass
        case _:
            raise BadMessage("an array is named by its name, type and shape")
    if not all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 1 << 40 for one in shape):
        raise BadMessage(f"the shape of {name!r} is none")
    kind = dtype_of(type_name)
    if math.prod(shape) * kind.itemsize != len(frame):
        raise BadMessage(f"{name!r} has {len(frame)} bytes, and {type_name} of shape {shape} has not")
    return name, np.frombuffer(frame, kind).reshape(shape)


def dtype_of(text: str) -> np.dtype[Any]:
    """
    Read a type, such as ``<f4``.

    :raises BadMessage: it is none, or one of objects, structures or texts
    """
    if len(text) > 5 or text[:1] not in "<|" or text[1:2] not in KINDS or not text[2:].isdigit():
        raise BadMessage(f"{text[:20]!r} is no type of numbers")
    try:
        return np.dtype(text)
    except (TypeError, ValueError):
        raise BadMessage(f"{text!r} is no type of numbers") from None


def _little(array: Array) -> Array:
    """Have an array in one piece, with its lowest bytes first."""
    if array.dtype.kind not in KINDS:
        raise TypeError(f"an array of {array.dtype} cannot be sent: only numbers can")
    plain = np.ascontiguousarray(array).reshape(array.shape)  # the former makes (1,) of ()
    return plain if plain.dtype.str[0] in "<|" else plain.astype(plain.dtype.newbyteorder("<"))
