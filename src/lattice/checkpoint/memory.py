"""
Memory that outlives the worker that wrote it: a descriptor of it is all that another process needs.

It has no name, so there is nothing to clean up: the last process that lets go of it, however it ends, frees it.
"""

from __future__ import annotations

import ctypes
import errno
import io
import json
import mmap
import os
import threading
from typing import Any

POPULATE_WRITE = 23  # madvise: of Linux 5.14; earlier ones make the pages when they are first written
PAGE = mmap.PAGESIZE


class Arena:
    """Some files in memory, written one after another."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.descriptor = os.memfd_create("lattice-checkpoint", os.MFD_CLOEXEC)
        self._memory: mmap.mmap | None = None
        self._view = memoryview(b"")
        self._end = 0
        self._table: list[tuple[str, int, int]] = []
        self._preparing: threading.Thread | None = None

    @property
    def capacity(self) -> int:
        """Tell how much fits without more memory being asked for."""
        return len(self._view)

    def clear(self) -> None:
        """Forget what was written; the memory stays, so that writing again is as quick as a copy."""
        if self._preparing is not None:
            self._preparing.join()
            self._preparing = None
        self._end, self._table = 0, []

    def reserve(self, size: int) -> None:
        """Have room for so many bytes in all."""
        if size <= self.capacity:
            return
        size = -(-size // PAGE) * PAGE
        os.ftruncate(self.descriptor, size)
        self._view.release()
        self._memory = mmap.mmap(self.descriptor, size)
        self._view = memoryview(self._memory)

    def prepare(self, size: int) -> None:
        """Reserve, and have every page made meanwhile: that takes ten times as long as the copy itself."""
        self.reserve(size)
        self._preparing = threading.Thread(target=self._populate, name="checkpoint memory", daemon=True)
        self._preparing.start()

    def _populate(self) -> None:
        assert self._memory is not None
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        ctypes.CDLL(None).madvise(ctypes.c_void_p(address), ctypes.c_size_t(self.capacity), POPULATE_WRITE)

    def write(self, data: Any) -> int:
        """Add to the file that was begun last."""
        source = memoryview(data).cast("B")
        end = self._end + len(source)
        if end > self.capacity:
            self.reserve(max(end, 2 * self.capacity))
        self._view[self._end : end] = source
        self._end = end
        name, offset, length = self._table[-1]
        self._table[-1] = (name, offset, length + len(source))
        return len(source)

    def begin(self, name: str) -> None:
        """Begin a file, at the next page."""
        self._end = -(-self._end // PAGE) * PAGE
        self._table.append((name, self._end, 0))

    def rename(self, name: str, new: str) -> None:
        """Give a file another name."""
        self._table = [(new if each == name else each, *rest) for each, *rest in self._table]  # type: ignore[misc]

    def position(self) -> int:
        """Tell how much was written to the file that was begun last."""
        return self._table[-1][2]

    def seal(self) -> tuple[int, int]:
        """
        End: write down what is where.

        :return: where that is, and how long
        """
        table = json.dumps(self._table).encode()
        self.begin("")
        self.write(table)
        return self._table.pop()[1:]

    def close(self) -> None:
        """Let go of it."""
        if self._preparing is not None:
            self._preparing.join()
        self._view.release()
        if self._memory is not None:
            self._memory.close()
        os.close(self.descriptor)


class Kept:
    """The same, read by another process."""

    def __init__(self, descriptor: int, table: tuple[int, int]) -> None:
        """
        Take a sealed arena.

        :param descriptor: closed here, sooner or later
        :param table: what :meth:`Arena.seal` gave
        """
        self.descriptor = descriptor
        self.table = table
        self._memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        with memoryview(self._memory) as view:
            listed = json.loads(bytes(view[table[0] : table[0] + table[1]]))
            self.files = {name: view[offset : offset + length] for name, offset, length in listed}
        """what is in each file, by name"""

    def close(self) -> None:
        """Let go of it; views that are still used keep the memory."""
        self.files = {}
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        try:
            self._memory.close()
        except BufferError:
            pass  # it is closed when the last of them is gone


class Stream(io.RawIOBase):
    """A file of an arena, for whoever wants to write to a file."""

    def __init__(self, arena: Arena, name: str) -> None:
        super().__init__()
        arena.begin(name)
        self._arena = arena

    def writable(self) -> bool:
        """Tell that it can be written to."""
        return True

    def write(self, data: Any) -> int:
        """Add to it."""
        return self._arena.write(data)

    def tell(self) -> int:
        """Tell how much was written."""
        return self._arena.position()

    def fileno(self) -> int:
        """Tell that there is nothing to be synchronised."""
        raise io.UnsupportedOperation(errno.EBADF, "memory")


class View(io.RawIOBase):
    """Memory, for whoever wants to read from a file."""

    def __init__(self, data: memoryview) -> None:
        super().__init__()
        self._data = data
        self._at = 0

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be read in any order."""
        return True

    def tell(self) -> int:
        """Tell where it is."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go elsewhere."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._data)}[whence]
        self._at = max(start + offset, 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read as much as there is, and fits."""
        target = memoryview(buffer).cast("B")
        part = self._data[self._at : self._at + len(target)]
        target[: len(part)] = part
        self._at += len(part)
        return len(part)
