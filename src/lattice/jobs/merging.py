"""What several nodes write, as one stream of whole lines, each as soon as it is there."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

from lattice.errors import LatticeError


def merged(
    readers: Mapping[int, Callable[[], Iterable[bytes]]], stop: Callable[[], None]
) -> Iterator[tuple[int, bytes]]:
    """
    Read from all at the same time.

    :param readers: for each node what gives its bytes, called in a thread of its own
    :param stop: makes all readers end; called at the end, whatever it is
    :return: pieces of whole lines, and which node's they are; a last line without an end gets one
    :raises LatticeError: the first that a reader raised, after all that the others gave
    """
    pieces: queue.SimpleQueue[tuple[int, bytes | LatticeError | None]] = queue.SimpleQueue()

    def read(index: int) -> None:
        try:
            rest = b""
            for chunk in readers[index]():
                whole, newline, rest = (rest + chunk).rpartition(b"\n")
                if newline:
                    pieces.put((index, whole + newline))
            if rest:
                pieces.put((index, rest + b"\n"))
            pieces.put((index, None))
        except LatticeError as error:
            pieces.put((index, error))

    threads = [threading.Thread(target=read, args=(index,), name=f"logs {index}", daemon=True) for index in readers]
    try:
        for thread in threads:
            thread.start()
        waiting, failed = set(readers), None
        while waiting:
            index, piece = pieces.get()
            if isinstance(piece, bytes):
                yield index, piece
            else:
                waiting.discard(index)
                failed = failed or piece
        if failed is not None:
            raise failed
    finally:
        stop()
        for thread in threads:
            thread.join()
