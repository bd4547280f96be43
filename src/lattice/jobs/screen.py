"""Where tables are shown: in place on a terminal, one below the other elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from lattice.jobs.tables import Table
from lattice.launching.display.lines import Line
from lattice.launching.display.showing import live_on


class Screen:
    """
    Shows one table, in its newest state.

    :param stream: where to
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = live_on(stream)
        self._shown: Sequence[Table] = ()
        self._news: object = None

    def show(self, tables: Sequence[Table]) -> None:
        """Show how things stand."""
        self._shown = tables
        if self._live is not None:
            self._live.show(_fitting(_lines(tables), self._live.rows - 1))
        elif (news := [table.news for table in tables]) != self._news:
            again = "\n" if self._news is not None else ""
            self._news = news
            print(again + "\n".join(line.text for line in _lines(tables)), file=self._stream, flush=True)

    def leave(self) -> None:
        """Leave what was shown last, whole, where it is."""
        if self._live is not None:
            self._live.show(_lines(self._shown))
            self._live.leave()


def _lines(tables: Sequence[Table]) -> list[Line]:
    lines: list[Line] = []
    for table in tables:
        lines += ([Line("")] if lines else []) + table.lines()
    return lines


def _fitting(lines: list[Line], height: int) -> list[Line]:
    if len(lines) <= height:
        return lines
    return [*lines[: max(height - 1, 0)], Line(f"… and {len(lines) - height + 1} lines more")]
