"""Starts a keeper; by the agent of a node, or by a script that no agent runs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

# Not -m: that would let a file in the working directory stand in for a module of Python's.
PROGRAM = "import sys; sys.path[:0] = [sys.argv.pop(1)]; from lattice.checkpoint.keeper import main; sys.exit(main())"
PACKAGES = str(Path(__file__).parents[2])


def start_keeper(
    listener: socket.socket, patience: float, stderr: int | IO[bytes] | None
) -> tuple[subprocess.Popen[bytes], int]:
    """
    Start one.

    :param listener: where workers will call
    :param patience: seconds that it may go on writing at the end
    :param stderr: where it says what users should know
    :return: the process, and the descriptor to close when it is no longer needed
    """
    there, here = os.pipe2(os.O_CLOEXEC)
    words = ["--listener", str(listener.fileno()), "--control", str(there), "--patience", str(patience)]
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", PROGRAM, PACKAGES, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=(listener.fileno(), there),
            # Not a session of its own: an agent ends those as what its workers left behind. Ctrl-C does not reach it.
            process_group=0,
        )
    except BaseException:
        os.close(here)
        raise
    finally:
        os.close(there)
    return process, here
