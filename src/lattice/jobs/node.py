"""
The program that a host runs to be asked about the nodes of a job: one request in, lines of JSON out.

A request is one line of JSON, followed by as many bytes as its ``size`` says. An answer is the line of
:data:`START`, then a line of JSON, or for logs lines ``{"size": n}`` each followed by so many bytes.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

from lattice import __version__
from lattice.errors import LatticeError
from lattice.jobs.desk import desk, home

START = b"LATTICE-JOB-NODE-1\n"
"""the first line from it: a login shell may have written something before"""


class Bounded:
    """The next so many bytes of a stream, as a file that can only be read on."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream = stream
        self._left = size

    def read(self, size: int = -1) -> bytes:
        """Read at most so many bytes."""
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._stream.read(wanted) if wanted else b""
        self._left -= len(data)
        return data


def main() -> int:
    """Answer the request on standard input."""
    stdin, stdout = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that prints may come between the answers
    stdout.write(START)
    stdout.flush()
    try:
        request = json.loads(stdin.readline())
        if request["do"] == "logs":
            for chunk in logs(request):
                stdout.write(json.dumps({"size": len(chunk)}).encode() + b"\n" + chunk)
                stdout.flush()
            answer: dict[str, Any] = {"size": 0}
        else:
            size = request.get("size", 0)
            answer = perform(request, cast("IO[bytes]", Bounded(stdin, size)) if size else None)
    except LatticeError as error:
        answer = {"error": str(error), "code": error.exit_code}
    except BrokenPipeError:
        return 141
    try:
        stdout.write(json.dumps(answer).encode() + b"\n")
        stdout.flush()
    except BrokenPipeError:
        return 141
    return 0


def perform(request: dict[str, Any], body: IO[bytes] | None) -> dict[str, Any]:
    """
    Do what is asked for.

    :param request: what, and of which node
    :param body: bytes that came with it
    :raises LatticeError: it cannot be done
    """
    place = desk(home(os.environ), request["submission"], request["index"])
    match request["do"]:
        case "create":
            place.create(request["order"], body)
            return {"lattice": __version__, "host": socket.gethostname(), "folder": str(place.folder)}
        case "reserve":
            return {"address": own_address(), "port": free_port()}
        case "start":
            view = place.start(again=request.get("again", False))
        case "look":
            view = place.look()
        case "stop":
            view = place.stop(request["grace"])
        case "remove":
            place.remove()
            return {}
        case other:
            raise LatticeError(f"this host does not know what {other!r} means; it has Lattice {__version__}.")
    return {"view": view.dump()}


def logs(request: dict[str, Any], stopped: Callable[[], bool] = lambda: False) -> Iterator[bytes]:
    """Give what a node wrote, as asked for."""
    place = desk(home(os.environ), request["submission"], request["index"])
    return place.logs(request["rank"], lambda: request["follow"] and not stopped() and place.lives())


def own_address() -> str:
    """Tell under which address the other hosts reach this one: the one by which we were reached."""
    words = os.environ.get("SSH_CONNECTION", "").split()
    return words[2] if len(words) == 4 else "127.0.0.1"


def free_port() -> int:
    """Find a port that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
