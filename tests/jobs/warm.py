"""
A process that has loaded all that commands of ours need, and forks for each: what takes seconds is done once.

One request per line of standard input: ``words`` of a command, ``environ``, ``cwd``, files ``out`` and ``err``, and
whatever else the place of the jobs knows. The answer is a line with its exit code, negative for a signal.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

Prepare = Callable[[Mapping[str, Any]], None]


def perform(request: Mapping[str, Any], prepare: Prepare) -> int:
    """Be the command."""
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["cwd"])
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(request[name], flags), descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    prepare(request)
    from lattice.cli import main

    return main(request["words"])


def serve(prepare: Prepare) -> None:
    """
    Answer requests until there are no more.

    :param prepare: what a command does with the rest of a request before it begins
    """
    gc.collect()
    gc.freeze()  # a command that looks for garbage leaves alone what it shares with all others
    for line in sys.stdin:
        child = os.fork()
        if not child:
            code = 70
            try:
                code = perform(json.loads(line), prepare)
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
