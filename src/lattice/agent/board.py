"""The board of one agent: memory that its workers write their progress into, and that is gone with the agent."""

from __future__ import annotations

import mmap
import os

from lattice.core.board import LINE, NOTICED_UNTIL, VARIABLE, Line, read


class Board:
    """One line for each worker."""

    def __init__(self, workers: int) -> None:
        self._descriptor = os.memfd_create("lattice-board", os.MFD_CLOEXEC)
        os.ftruncate(self._descriptor, workers * LINE)
        self._memory = mmap.mmap(self._descriptor, workers * LINE)
        self._whole = memoryview(self._memory)
        lines = [self._whole[at : at + LINE] for at in range(0, workers * LINE, LINE)]
        self._moments = [line.cast("d") for line in lines]
        self._counts = [line.cast("q") for line in lines]
        for line in lines:
            line.release()

    def variables(self, local_rank: int) -> dict[str, str]:
        """Tell a worker where its line is."""
        return {VARIABLE: f"/proc/{os.getpid()}/fd/{self._descriptor}@{local_rank * LINE}"}

    def clear(self) -> None:
        """Forget the round before."""
        self._whole[:] = bytes(len(self._whole))

    def line(self, local_rank: int) -> Line:
        """Read what a worker has told."""
        return read(self._moments[local_rank], self._counts[local_rank])

    def give_notice(self, local_rank: int, until: float) -> None:
        """Tell a worker that it has until some moment."""
        self._moments[local_rank][NOTICED_UNTIL] = until

    def close(self) -> None:
        """Give the memory back."""
        for moments, counts in zip(self._moments, self._counts, strict=True):
            moments.release()
            counts.release()
        self._whole.release()
        self._memory.close()
        os.close(self._descriptor)
