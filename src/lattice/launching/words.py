"""What an agent tells its launcher: its words, as records of its log, and how it stands. It never waits for that."""

from __future__ import annotations

import json
import logging
from typing import Any

from lattice.launching.channel import AGENT, LOG, STREAMS, BrokenChannelError, Channel, Kind
from lattice.launching.records import to_line
from lattice.telemetry.console import Block, Console, Outlet
from lattice.telemetry.journal import Journal

NAME = "lattice"
"""the logger that an agent's words come from"""


class _Stream(Outlet):
    """A queue before the channel: the agent's loop must not wait for a launcher that does not read."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        super().__init__(-1)

    def _write(self, text: bytes) -> None:
        try:
            self._channel.send(Kind.LOG, text)
        except BrokenChannelError as error:
            raise OSError(str(error)) from error


class Words(Console):
    """The console of an agent whose user sits at the launcher."""

    def __init__(self, channel: Channel) -> None:
        self._stream = _Stream(channel)
        self._outlets = dict.fromkeys(("stdout", "stderr"), self._stream)

    def show(self, stream: str, text: bytes, lines: int, source: str) -> None:
        """Leave out what workers write: it is in files, which are sent by themselves."""

    def say(self, text: str, prefix: str = "", *, routine: bool = False) -> None:
        """Send words as a record: a warning, unless they are routine."""
        level = logging.INFO if routine else logging.WARNING
        self._put("records", to_line(logging.LogRecord(NAME, level, "", 0, prefix + text.rstrip(), None, None)))

    def tell(self, event: str, facts: dict[str, Any]) -> None:
        """Send what happened, for whoever wants to know how this host stands."""
        self._put("events", json.dumps({**facts, "event": event}, default=str).encode())

    def flush(self) -> None:
        """Wait until everything has been sent, or nobody is there to hear it."""
        self._stream.flush()

    def _put(self, stream: str, line: bytes) -> None:
        self._stream.put_always(Block(LOG.pack(AGENT, STREAMS.index(stream)) + line, 1, ""))


class Told(Journal):
    """A journal whose reader is the launcher."""

    def __init__(self, words: Words) -> None:
        super().__init__("")
        self._words = words

    def write(self, event: str, **facts: Any) -> None:
        """Tell what happened."""
        self._words.tell(event, facts)
