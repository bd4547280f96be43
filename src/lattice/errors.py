"""Every error that reaches a user: a class owns its exit code, its message says what happened and what to do next."""


class LatticeError(Exception):
    """Something that the edge prints as one line and turns into an exit code."""

    exit_code = 1


class UsageError(LatticeError):
    """A wrong option, variable, file or combination of them; nothing was started."""

    exit_code = 2


class WorkerNotStarted(LatticeError):
    """A worker's program could not be executed: not there (127), or there and not executable (126), as shells say."""

    exit_code = 126


class StoreUnavailable(LatticeError):
    """
    The store did not answer: worth another try, perhaps at another endpoint.

    A write that ended this way may or may not have been applied.
    """


class StoreRefused(LatticeError):
    """The store answered and said no (credentials, certificate, permission): trying again is useless."""


class Compacted(LatticeError):
    """The asked revision is no longer kept: read anew."""


class NotPickled(LatticeError):
    """A function, an argument or a result cannot be pickled."""

    exit_code = 2


class TooLarge(LatticeError):
    """Something to be sent takes more than half of the memory."""

    exit_code = 2


class ResultNotReturned(LatticeError):
    """A worker's function returned, but what it returned cannot be had: it does not pickle, or is too large."""


class AgentFailedError(LatticeError):
    """An agent could not be started on a host, or died there."""

    def __init__(self, message: str, *, host: str = "", stderr: str = "") -> None:
        self.host = host
        """as the caller named it"""
        self.stderr = stderr
        """the last of what was said there"""
        super().__init__(message + _quoted(stderr))


class WorkerFailedError(LatticeError):
    """A worker ended without a result and without an exception that could be raised in its place."""

    def __init__(
        self,
        reason: str = "",
        *,
        rank: int,
        host: str,
        pid: int = 0,
        exit_code: int | None = None,
        signal: str = "",
        stderr: str = "",
        out_of_memory: bool = False,
    ) -> None:
        """
        Say what became of a worker.

        :param reason: what is known besides; if there is nothing else, this is all that is said
        :param rank: of the worker
        :param host: as the caller named it
        :param pid: its process there
        :param exit_code: with which it ended, if it did so by itself
        :param signal: name of the signal that ended it
        :param stderr: the last lines that it wrote to standard error
        :param out_of_memory: the kernel's log or its cgroup says so
        """
        self.rank, self.host, self.pid = rank, host, pid
        self.worker_exit_code, self.signal = exit_code, signal
        self.stderr, self.out_of_memory = stderr, out_of_memory
        who = f"rank {rank} on {host}" + (f" (pid {pid})" if pid else "")
        super().__init__(f"{who} {reason or self._end()}." + _quoted(stderr))

    def _end(self) -> str:
        if self.signal == "SIGKILL" and self.out_of_memory:
            return "was killed, likely out of memory (SIGKILL): use fewer workers per host, or smaller batches"
        if self.signal:
            return f"was killed by {self.signal}"
        if self.worker_exit_code == 0:
            return (
                "exited with code 0 and left no result: something in it called os._exit. "
                "Return from the function instead"
            )
        if self.worker_exit_code is not None:
            return f"exited with code {self.worker_exit_code} and left no result"
        return "ended and left no result"


def _quoted(stderr: str) -> str:
    text = stderr.rstrip()
    return f"\nIt last wrote to standard error:\n{text}" if text else ""
