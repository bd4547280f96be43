"""Log records as lines of JSON: how a worker's ``logging`` reaches the launcher with all that it knew."""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
from typing import Any

STANDARD = frozenset(vars(logging.makeLogRecord({})))
SENT = ("name", "levelno", "levelname", "pathname", "lineno", "funcName", "created", "msecs", "thread", "threadName",
        "process", "processName")  # fmt: skip
FORMAT = logging.Formatter()


def to_line(record: logging.LogRecord) -> bytes:
    """Write a record as one line; whatever JSON does not know is written as it looks."""
    fields: dict[str, Any] = {name: getattr(record, name, None) for name in SENT}
    fields["msg"] = record.getMessage()
    if record.exc_info:
        fields["exc_text"] = record.exc_text or FORMAT.formatException(record.exc_info)
    if record.stack_info:
        fields["stack_info"] = str(record.stack_info)
    extra = {name: value for name, value in vars(record).items() if name not in STANDARD}
    if extra:
        fields["extra"] = extra
    return json.dumps(fields, default=repr, skipkeys=True).encode() + b"\n"


def from_line(line: bytes) -> logging.LogRecord:
    """
    Make the record of a line again.

    :raises ValueError: the line is not one that a worker wrote
    """
    fields = json.loads(line)
    if not isinstance(fields, dict) or not {"name", "levelno", "msg"} <= fields.keys():
        raise ValueError(f"no log record: {line[:100]!r}")
    extra = fields.pop("extra", {})
    return logging.makeLogRecord({**extra, **fields})


class RecordWriter(logging.Handler):
    """Writes records to a pipe or a file, one line each, unless the worker's own logging shows them anyway."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        if self._is_shown():
            return
        try:
            left = memoryview(to_line(record))
            while left:
                left = left[os.write(self._descriptor, left) :]
        except Exception:
            self.handleError(record)

    def _is_shown(self) -> bool:
        """A handler that the function gave the root logger prints this, in a format of its own: once is enough."""
        streams = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
        return any(
            isinstance(handler, logging.StreamHandler) and handler.stream in streams
            for handler in logging.root.handlers
            if handler is not self
        )


def install(path: str) -> RecordWriter:
    """
    Have the records of this process written to a file.

    The level is INFO unless one was set, as what a function tells should be seen. ``logging.basicConfig`` still works
    as if there were no handler yet.

    :param path: of the file or pipe
    """
    writer = RecordWriter(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC))
    root = logging.root
    if root.level == logging.WARNING:
        root.setLevel(logging.INFO)
    root.addHandler(writer)
    original = logging.basicConfig

    @functools.wraps(original)
    def configure(**options: Any) -> None:
        root.removeHandler(writer)
        try:
            original(**options)
        finally:
            root.addHandler(writer)

    logging.basicConfig = configure
    return writer
