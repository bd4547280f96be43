"""
Makes one image of a Python value, without a copy of its arrays, and the value of an image again, without a copy too.

An image is an index, a pickle of protocol 5, and the buffers that the pickle leaves out, each at a multiple of 64. It
may lie anywhere in memory, so workers of a host can share one. numpy and torch are never imported here: what they have
made is known by its name.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any
from weakref import WeakSet

from lattice.errors import NotPickled, TooLarge
from lattice.launching.raised import reduce_exception
from lattice.launching.room import refuse_beyond, room

MAGIC = b"LATTICE1"
ALIGNMENT = 64
HEAD = struct.Struct("<8sQ")
"""magic and number of parts; then an offset and a length for each part, of which the pickle is the first"""
PLACE = struct.Struct("<QQ")
SMALL = 64 << 10
CHUNK = 1 << 20

_settled: WeakSet[type] = WeakSet()
"""classes that are complete in this process, of those that travel by value"""


class Parcel:
    """An image that was not put together yet: pieces of memory, many of which belong to the value itself."""

    def __init__(self, pickled: Sequence[bytes | bytearray], buffers: Sequence[memoryview]) -> None:
        self._pieces: list[memoryview] = []
        self.size = 0
        """bytes of the image"""
        lengths = [sum(map(len, pickled)), *(view.nbytes for view in buffers)]
        offset = HEAD.size + PLACE.size * len(lengths)
        index = bytearray(HEAD.pack(MAGIC, len(lengths)))
        for length in lengths:
            offset = _aligned(offset)
            index += PLACE.pack(offset, length)
            offset += length
        self._add(index)
        self._pad()
        for piece in pickled:
            self._add(piece)
        for view in buffers:
            self._pad()
            self._add(view)

    def _add(self, piece: bytes | bytearray | memoryview) -> None:
        self._pieces.append(memoryview(piece))
        self.size += self._pieces[-1].nbytes

    def _pad(self) -> None:
        self._add(bytes(_aligned(self.size) - self.size))

    def chunks(self, limit: int = CHUNK) -> Iterator[memoryview]:
        """
        Give the image from its beginning to its end.

        :param limit: the most bytes of a chunk; large pieces are cut, small ones are put together
        """
        small = bytearray()
        for piece in self._pieces:
            if piece.nbytes < SMALL and len(small) + piece.nbytes <= limit:
                small += piece
                continue
            if small:
                yield memoryview(small)
                small = bytearray()
            for start in range(0, piece.nbytes, limit):
                yield piece[start : start + limit]
        if small:
            yield memoryview(small)

    def write(self, descriptor: int, offset: int = 0) -> None:
        """
        Write the image into a file.

        :param descriptor: of the file
        :param offset: where it begins there
        """
        for chunk in self.chunks(1 << 30):
            left = chunk
            while left:
                written = os.pwrite(descriptor, left, offset)
                offset += written
                left = left[written:]

    def join(self) -> bytes:
        """Give the image in one piece: a copy, for what is small."""
        return b"".join(self._pieces)


class _Heap:
    """What a pickler writes to: keeps large bytes as they are, and knows when it becomes too much."""

    def __init__(self, what: str, limit: int) -> None:
        self.parts: list[bytes | bytearray] = []
        self.buffers: list[memoryview] = []
        self._size = 0
        self._what, self._limit = what, limit

    def write(self, data: Any) -> int:
        """Take a part of the pickle."""
        # A memoryview here is of memory that the pickler is about to free; bytes belong to the value.
        part = data if isinstance(data, bytes | bytearray) else bytes(data)
        self._count(len(part))
        self.parts.append(part)
        return len(part)

    def take(self, buffer: pickle.PickleBuffer) -> None:
        """Take a buffer that the pickle leaves out."""
        view = buffer.raw()
        self._count(view.nbytes)
        self.buffers.append(view)

    def _count(self, length: int) -> None:
        self._size += length
        refuse_beyond(self._limit, self._size, self._what)


def dump(value: object, what: str = "this value", *, limit: int | None = None) -> Parcel:
    """
    Pickle a value: once, with all that is needed of ``__main__``, and its arrays aside.

    :param value: must not be changed until the parcel was written
    :param what: how errors call it
    :param limit: the most bytes; what there is room for unless given
    :raises NotPickled: something in it cannot be pickled
    :raises TooLarge: it is beyond the limit
    """
    heap = _Heap(what, room() if limit is None else limit)
    try:
        _pickler()(heap, protocol=5, buffer_callback=heap.take).dump(value)
    except (TooLarge, NotPickled, MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        # Objects decide how they are pickled, so anything at all may come out of it.
        raise NotPickled(f"{what} cannot be pickled: {type(error).__name__}: {error}") from error
    return Parcel(heap.parts, heap.buffers)


def dump_plain(value: object) -> Parcel:
    """Pickle something of our own, for which the standard library is enough."""
    return Parcel([pickle.dumps(value, 5)], [])


def load(image: memoryview) -> Any:
    """
    Give the value of an image.

    :param image: its arrays will be views of it, writable if it is
    """
    magic, count = HEAD.unpack_from(image)
    if magic != MAGIC:
        raise ValueError(f"an image begins with {MAGIC!r}, not {magic!r}")
    parts = []
    for number in range(count):
        offset, length = PLACE.unpack_from(image, HEAD.size + number * PLACE.size)
        parts.append(image[offset : offset + length])
    return pickle.loads(parts[0], buffers=parts[1:])


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


@cache
def _pickler() -> Callable[..., Any]:
    try:
        import cloudpickle  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        raise NotPickled(
            f"cloudpickle is not installed for {sys.executable}, and functions travel with it: "
            'pip install "lattice-addons-pytorch[launch]" on every host.'
        ) from error

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc, unused-ignore]
        """Knows storages of torch and exceptions better than they do themselves."""

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, BaseException):
                return reduce_exception(obj)
            if type(obj).__module__ == "torch.storage":
                return _reduce_storage(obj)
            reduced = super().reducer_override(obj)
            if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) == 6:
                _settled.add(obj)
                make, arguments, state, items, pairs, setter = reduced
                return make, arguments, (setter, state), items, pairs, settle_class
            return reduced

    return Pickler


def settle_class(cls: type, state: tuple[Callable[[type, Any], Any], Any]) -> None:
    """
    Fill a class that came by value.

    One that comes home, because an instance was returned, is the class that left; it keeps its own methods.
    """
    if cls not in _settled:
        setter, rest = state
        setter(cls, rest)
        _settled.add(cls)


def _reduce_storage(storage: Any) -> Any:
    """Take the memory of a torch storage as it is. What is not on the CPU is left to torch, which copies it."""
    untyped = getattr(storage, "_untyped_storage", None)
    if untyped is not None:
        return typed_storage, (untyped, storage.dtype)
    try:
        address, length = storage.data_ptr(), storage.nbytes()
        if storage.device.type != "cpu" or (length and not address):
            return NotImplemented
    except (AttributeError, RuntimeError, NotImplementedError):
        return NotImplemented  # without memory of its own
    memory: Any = (ctypes.c_char * length).from_address(address) if length else bytearray()
    if length:
        memory.owner = storage  # lives as long as views of it do
    return untyped_storage, (pickle.PickleBuffer(memory),)


def typed_storage(untyped: Any, dtype: Any) -> Any:
    """Make the kind of storage that torch pickles tensors with."""
    from torch.storage import TypedStorage

    return TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)  # type: ignore[no-untyped-call]


def untyped_storage(buffer: Any) -> Any:
    """Make a storage of an image's memory; of a copy where that cannot be written, which no tensor would respect."""
    import torch

    view = memoryview(buffer)
    if not view.nbytes:
        return torch.UntypedStorage(0)  # type: ignore[no-untyped-call]
    return torch.frombuffer(bytearray(view) if view.readonly else view, dtype=torch.uint8).untyped_storage()
