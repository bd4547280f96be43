"""What is told of a launch that failed besides its exception: who failed said what last, and where the logs are."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Sequence
from logging import Handler

from lattice.launching.handlers import Files, Origin, Printer
from lattice.launching.kept import LogLine
from lattice.launching.logs import Logs

WHERE = "logs of all agents and workers: "
"""what the note begins with that says where they are"""
SHOWN = 20
"""lines at most"""


def unseen(lines: Sequence[LogLine], shown: str) -> list[str]:
    """
    Give the last lines that the user has not seen.

    :param lines: the end of a log
    :param shown: the text of the exception: what is in it too is left out, a traceback for example
    """
    known = {line.strip() for line in shown.splitlines()}
    texts = [text for line in lines for text in line.text.split("\n")]
    left = [text for text in texts[-SHOWN:] if text.strip() not in known]
    return left if any(text.strip() for text in left) else []


def tell_more(error: BaseException, blamed: Origin | None, logs: Logs, handlers: Sequence[Handler]) -> None:
    """
    Print the end of the log of an agent or worker that made a launch fail, unless it has been printed, and note in
    the exception where the files are.

    :param error: what the caller will get
    :param blamed: whose failure it was
    :param logs: all of the launch
    :param handlers: of the launch: only those by default print and write files by themselves
    """
    printer = next((one for one in handlers if isinstance(one, Printer)), None)
    files = next((one for one in handlers if isinstance(one, Files)), None)
    if printer is not None and blamed is not None and not printer.takes(blamed):
        logs.end(blamed)
        lines = unseen(logs.tail(blamed), "".join(traceback.format_exception_only(error)))
        if lines:
            of = f" of {files.path(blamed)}" if files is not None else ""
            printer.lines(blamed, f"failed; the end{of}:\n".encode(errors="backslashreplace"))
            printer.lines(blamed, "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace"))
    if files is not None and files.pattern and not isinstance(error, InterruptedError):
        with contextlib.suppress(Exception):  # some exceptions take no notes
            error.add_note(f"{WHERE}{files.pattern}")
