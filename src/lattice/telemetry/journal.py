"""The journal: one JSON line for every state change, with its reason and the time it took."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from typing import Any

from lattice.errors import UsageError


class Journal:
    """Writes events to a file, to standard output, or nowhere."""

    def __init__(self, target: str, **context: Any) -> None:
        """
        Open the journal.

        :param target: a file that is appended to, ``-`` for standard output, empty for nowhere
        :param context: written into every line
        :raises UsageError: the file can't be written
        """
        self._context = context
        self._began = self._last = time.monotonic()
        self._descriptor = -1
        if target == "-":
            self._descriptor = os.dup(1)
        elif target:
            try:
                self._descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise UsageError(
                    f"cannot write the journal to {target!r}: {error.strerror}. "
                    "Give another file with --events (LATTICE_EVENTS)."
                ) from error

    def write(self, event: str, **facts: Any) -> None:
        """
        Add a line.

        :param event: what happened, in the past tense
        :param facts: reason, round, and so on; ``took`` is the seconds since the line before unless it is given
        """
        now = time.monotonic()
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "at": round(now - self._began, 4),
            "event": event,
            **self._context,
            "took": round(now - self._last, 4),
            **facts,
        }
        self._last = now
        if self._descriptor >= 0:
            try:
                os.write(self._descriptor, json.dumps(line, default=str).encode() + b"\n")
            except OSError:
                pass  # a full disk must not stop training; the console tells the same

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
