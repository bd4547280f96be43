"""The zygote: a worker's own interpreter, held just before it reads its script, that has imported the heavy modules."""

# ruff: noqa: PTH120
# The agent executes the workers' very command line with the workers' very environment and this folder at the head of
# PYTHONPATH, so that Python itself imports this file while it starts: its options, sys.argv, streams and `__main__` are
# there, sys.path[0] is not, and the script has not been looked at. Here the process waits. Every fork of it returns
# from this import, and Python goes on as in a fresh start: no frame of ours is left, and the script, its traceback, its
# exit code and its end are Python's own business.
#
# It runs on any Python from 3.8 on and must leave no trace in sys.modules, so it uses what is always loaded, and keeps
# the few modules that are not to itself. The control socket is descriptor 0. Messages are framed as in guard.py:
#   ("become", count, words)          execute the workers' command line, with these for the last words of the present
#                                     one: it is certain now that this file is imported
#   ("begin", {...})               -> ("importing", name)..., then ("ready", {...})
#                                     or ("unsafe", name, reason) and exit: leave that module out next time
#   ("check",)                     -> nothing, ("stale", reason) or ("cold", reason)
#   ("fork",) + leash              -> the same; all else is said on the leash, a socket between agent and newborn:
#       newborn: ("born", pid)     once it is the agent's own child; then it waits, for a moment or for days
#       agent: ("wake", variables, cwd, has_stdin) + descriptors: [stdin], stdout, stderr
#       newborn: ("alive",) or ("stale" or "cold", reason); end-of-file means that it is dead

from __future__ import annotations

import os
import stat
import sys

HERE = os.path.dirname(__file__)


def is_zygote() -> bool:
    """Tell the process that the guard made a session for from others that got hold of its PYTHONPATH."""
    try:
        return os.getsid(0) == os.getpid() and stat.S_ISSOCK(os.fstat(0).st_mode) and sys.version_info >= (3, 8)
    except OSError:
        return False


def leave_no_trace() -> None:
    """Take everything of ours out of this interpreter's tables."""
    sys.path[:] = [entry for entry in sys.path if entry != HERE]
    sys.path_importer_cache.pop(HERE, None)
    sys.modules.pop("sitecustomize", None)


def without_us(path: str) -> str:
    """Take this folder from the head of PYTHONPATH."""
    return path[len(HERE) + 1 :] if path.startswith(HERE + os.pathsep) else "" if path == HERE else path


if is_zygote():
    known = set(sys.modules)
    import nursery  # type: ignore[import-not-found]

    known -= {"__future__", "sitecustomize"}
    for name in ("nursery", "newborn", "control", "gc", "_ctypes", "_socket", "__future__"):
        if name not in known:
            sys.modules.pop(name, None)
    try:
        nursery.main(known, leave_no_trace)
    except BaseException:
        # Python would take note of it and run the script: with no rank, in a process that nobody knows.
        sys.excepthook(*sys.exc_info())
        os._exit(70)
else:
    leave_no_trace()
    if "PYTHONPATH" in os.environ:
        os.environ["PYTHONPATH"] = without_us(os.environ["PYTHONPATH"])

# There may be a sitecustomize that is meant: it runs in each worker, as it would have. Without one, Python expects
# precisely this error.
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
