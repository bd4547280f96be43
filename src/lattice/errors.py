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
