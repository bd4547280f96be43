"""What workers write, sorted by the user's wishes: always into files, and onto the console unless redirected."""

from __future__ import annotations

from pathlib import Path

from lattice.core.dataclass import dataclass
from lattice.core.spec import LogSpec
from lattice.telemetry.console import Console
from lattice.telemetry.logs import LogPump, open_pipe

STREAMS = {"stdout": 1, "stderr": 2}
"""the bit of each stream in redirects and tee"""


@dataclass(frozen=True, slots=True)
class WorkerStreams:
    """The ends of the pipes that a worker gets; whoever opened them closes them."""

    stdout: int
    stderr: int


def shown(logs: LogSpec, local_rank: int, stream: str) -> bool:
    """
    Tell whether lines of a worker appear on the console.

    :param logs: what the user asked for
    :param local_rank: the worker
    :param stream: ``stdout`` or ``stderr``
    """
    bit = STREAMS[stream]
    if logs.ranks is not None and local_rank not in logs.ranks:
        return False
    redirected = any(bits & bit for rank, bits in logs.redirects if rank in (None, local_rank))
    teed = any(bits & bit for rank, bits in logs.tee if rank in (None, local_rank))
    return teed or not redirected


class Output:
    """The output of this node's workers, one after another."""

    def __init__(self, logs: LogSpec, console: Console) -> None:
        self._logs = logs
        self._console = console
        self._pump = LogPump(console)
        self._names: dict[int, tuple[int, int]] = {}
        self._opened = 0
        self._closed = False

    def open(self, local_rank: int, folder: Path, *, rank: int, host: str) -> WorkerStreams:
        """
        Make the pipes of a worker.

        :param local_rank: names it in later calls
        :param folder: where its files go
        :param rank: shown before its lines
        :param host: shown too unless empty
        :return: the ends for the worker
        """
        self._opened += 1
        name = self._names[local_rank] = (local_rank, self._opened)
        prefix = f"[rank {rank} {host}] " if host else f"[rank {rank}] "
        ends = {}
        for stream in STREAMS:
            read, ends[stream] = open_pipe()
            visible = prefix if shown(self._logs, local_rank, stream) else None
            self._pump.add(name, stream, read, str(folder / f"{stream}.log"), visible)
        return WorkerStreams(**ends)

    def tail(self, local_rank: int) -> str:
        """Give the end of what an ended worker wrote to standard error."""
        return self._pump.drain(self._names[local_rank]).stderr.decode(errors="replace")

    def finish(self, local_rank: int) -> None:
        """
        Close the pipes of an ended worker, after what is left in them has been read.

        This does not wait: the loop must go on whatever the disk and the console do. :meth:`close` waits.
        """
        self._pump.forget(self._names.pop(local_rank))

    def close(self) -> None:
        """
        Show all that workers wrote, then say so if files lack something; for after the loop, because this may wait.

        Pipes are read within the pump's own deadline, so that neither a stopped terminal nor a disk that hangs keeps
        the agent from ending. A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        self._pump.close()
        lost = sum(self._pump.lost_bytes.values())
        if lost:
            self._console.say(f"{lost} bytes of the workers' output are not in the log files; see above why.")
