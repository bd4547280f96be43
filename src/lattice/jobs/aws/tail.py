"""Log events of CloudWatch in order, each once, though they come late, out of order and in pages. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

MARK = re.compile(r"\[rank (\d+)(?: [^\]]*)?\] ")
"""how the agent marks the lines of its workers"""
LATE = 120_000
"""milliseconds that an event may be late"""


class Tail:
    """What was seen of a log, and what is new in another look at it."""

    def __init__(self) -> None:
        self._newest = 0
        self._seen: dict[str, int] = {}

    @property
    def start(self) -> int:
        """From which time on to ask, in milliseconds since 1970."""
        return max(self._newest - LATE, 0)

    def new(self, events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """
        Give those events that were not given before, in the order of their streams.

        :param events: all that there are from :attr:`start` on
        """
        named = {event["eventId"]: event for event in events}
        found = {name: event for name, event in named.items() if name not in self._seen}
        for name, event in found.items():
            self._seen[name] = event["timestamp"]
            self._newest = max(self._newest, event["timestamp"])
        self._seen = {name: time for name, time in self._seen.items() if time >= self.start}
        # Sorting keeps the order of events of one stream at one time: that in which they came.
        return sorted(found.values(), key=lambda event: event["timestamp"])


def line_of(message: str, rank: int | None) -> bytes | None:
    """
    Give the line that an event holds.

    :param message: of the event
    :param rank: whose line it should be, as that worker wrote it; None for anybody's as the agent wrote it
    :return: None for somebody else's
    """
    text = message.removesuffix("\n")
    if rank is None:
        return text.encode() + b"\n"
    found = MARK.match(text)
    return text[found.end() :].encode() + b"\n" if found and int(found[1]) == rank else None
