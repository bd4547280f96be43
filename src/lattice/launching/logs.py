"""Gives what agents and workers wrote to the handlers of a launch: whole lines, none lost, whatever their bytes are."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from lattice.launching.handlers import ByteHandler, Origin, OriginFilter
from lattice.launching.kept import Kept, LogLine, LogLines
from lattice.launching.records import from_line

LEVELS = {"stdout": logging.INFO, "stderr": logging.ERROR}
RECORDS = "records"
LONGEST_LINE = 1 << 20
"""bytes without an end of line that are taken for a line"""
TAIL = 8 << 10
"""bytes of each log that are kept for whoever asks why it ended"""


@dataclass(slots=True)
class _Log:
    """Who gets the log of one agent or worker, and what of it is not yet a line."""

    raw: list[ByteHandler]
    others: list[logging.Handler]
    rest: dict[str, bytes] = field(default_factory=dict)
    tail: Kept = field(default_factory=lambda: Kept(TAIL))


class Logs:
    """The logs of a launch on their way to handlers. For one thread."""

    def __init__(self, handlers: Sequence[logging.Handler], kept: Kept | None = None) -> None:
        """
        Begin.

        :param handlers: get all that they take
        :param kept: gets all
        """
        self._kept = kept
        self._handlers = list(handlers)
        self._logs: dict[Origin, _Log] = {}
        self._failed: set[int] = set()

    def feed(self, origin: Origin, stream: str, chunk: bytes) -> None:
        """
        Take what came.

        :param origin: whose it is
        :param stream: ``stdout``, ``stderr`` or ``records``, which are lines of JSON
        :param chunk: bytes as they come, lines or not
        """
        log = self._log(origin)
        whole = log.rest.pop(stream, b"") + chunk
        end = whole.rfind(b"\n") + 1
        if end < len(whole):
            if len(whole) - end > LONGEST_LINE:
                whole, end = whole + b"\n", len(whole) + 1
            else:
                log.rest[stream] = whole[end:]
        if end:
            self._give(origin, log, stream, whole[:end])

    def end(self, origin: Origin) -> None:
        """Take what is left of a log that has ended: a last line without an end is one too."""
        log = self._log(origin)
        rest, log.rest = log.rest, {}
        for stream, last in rest.items():
            self._give(origin, log, stream, last + b"\n")

    def tail(self, origin: Origin) -> list[LogLine]:
        """Give the last lines of an agent or worker."""
        return list(LogLines(self._log(origin).tail, lambda _: True, follow=False))

    def close(self, *, handlers: bool) -> None:
        """
        Take all that is left.

        :param handlers: whether to close them, because the launch made them
        """
        for origin in list(self._logs):
            self.end(origin)
        for handler in self._handlers:
            handler.flush()
            if handlers:
                handler.close()

    def _log(self, origin: Origin) -> _Log:
        if origin not in self._logs:
            raw = [one for one in self._handlers if isinstance(one, ByteHandler) and one.takes(origin)]
            others = [one for one in self._handlers if not isinstance(one, ByteHandler) and _may_take(one, origin)]
            self._logs[origin] = _Log(raw, others)
        return self._logs[origin]

    def _give(self, origin: Origin, log: _Log, stream: str, whole: bytes) -> None:
        lines = whole.count(b"\n")
        log.tail.add(origin, stream, whole, lines)
        if self._kept is not None:
            self._kept.add(origin, stream, whole, lines)
        if stream == RECORDS:
            for line in whole[:-1].split(b"\n"):
                self._give_record(origin, log, line)
            return
        for raw in log.raw:
            if LEVELS[stream] >= raw.level:
                self._call(raw, lambda raw=raw: raw.lines(origin, whole))
        if log.others:
            for line in whole[:-1].split(b"\n"):
                self._handle(origin, log.others, _record(stream, line.decode(errors="backslashreplace")))

    def _give_record(self, origin: Origin, log: _Log, line: bytes) -> None:
        try:
            record = from_line(line)
        except ValueError:
            record = _record("stderr", line.decode(errors="backslashreplace"))
        self._handle(origin, [*log.raw, *log.others], record)

    def _handle(self, origin: Origin, handlers: Sequence[logging.Handler], record: logging.LogRecord) -> None:
        record.hostname, record.local_rank, record.agent = origin.hostname, origin.local_rank, origin.agent
        for handler in handlers:
            if record.levelno >= handler.level:
                self._call(handler, lambda handler=handler: handler.handle(record))

    def _call(self, handler: logging.Handler, action: object) -> None:
        """Let a handler do its work: whatever it raises is its own trouble, and no reason to end a training."""
        try:
            action()  # type: ignore[operator]
        except Exception as error:
            if id(handler) not in self._failed:
                self._failed.add(id(handler))
                print(f"[lattice] the log handler {handler!r} fails: {error!r}", file=sys.stderr)


def _may_take(handler: logging.Handler, origin: Origin) -> bool:
    """Leave out handlers of other workers at once: with many workers each line would pass all of their filters."""
    return all(one.takes(origin) for one in handler.filters if isinstance(one, OriginFilter))


def _record(stream: str, text: str) -> logging.LogRecord:
    now = time.time()
    record = logging.LogRecord.__new__(logging.LogRecord)
    record.__dict__.update(_templates[stream])
    record.msg, record.created, record.msecs = text, now, now % 1 * 1000
    return record


# Made once: most of what a record says of its own process means nothing for a line of another one, and costs time.
_templates = {
    stream: vars(logging.makeLogRecord({"name": stream, "levelno": level, "levelname": logging.getLevelName(level)}))
    for stream, level in LEVELS.items()
}
