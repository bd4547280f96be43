"""
``python -m benchmarks.chart``: draws ``docs/benchmarks.svg`` from ``benchmarks/results.json``, and measures nothing.

The two bars of a row are to scale, beginning at nothing; rows have different units and sizes, so each has a scale of
its own. A side that never came to an end within the time that it was given gets a bar as long as that time, which
fades.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any

from benchmarks.jobs import ROOT
from benchmarks.report import number

FIGURES, PICTURE = ROOT / "benchmarks" / "results.json", ROOT / "docs" / "benchmarks.svg"
WIDTH, MARGIN = 880, 24
BARS, LONGEST = 272, 350
"""where bars begin, and how long the longer one of a row is"""
HEAD, SECTION, ROW, FOOT, LINE = 84, 34, 44, 22, 17
THICK = 13
SAME = 0.05
"""sides that differ by less than this are called equal"""
TITLE = "Lattice beside torchrun and torchrunx"
STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de }
  .name { fill: #1f2328; font-weight: 600 }
  .soft { fill: #59636e }
  .rule { stroke: #d0d7de }
  .ours { fill: #0969da }
  .gain { fill: #0969da; font-weight: 700 }
  .theirs { fill: #a8b1bb }
  .stop { stop-color: #a8b1bb }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #30363d }
    .name { fill: #e6edf3 }
    .soft { fill: #9198a1 }
    .rule { stroke: #30363d }
    .ours { fill: #4493f8 }
    .gain { fill: #4493f8 }
    .theirs { fill: #656c76 }
    .stop { stop-color: #656c76 }
  }
"""
FADE = (
    '<linearGradient id="fade"><stop class="stop" offset="0.6"/>'
    '<stop class="stop" offset="1" stop-opacity="0"/></linearGradient>'
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One side of a row."""

    length: float
    text: str
    endless: bool = False
    """whether the true end is further away than the bar can tell"""
    failed: bool = False
    """whether there will be no end at all"""


@dataclass(frozen=True, slots=True)
class Row:
    """Two bars."""

    section: str
    what: str
    until: str
    ours: Bar
    theirs: Bar
    other: str
    """whose the second bar is"""
    gain: str


def main() -> None:
    """Draw the chart of the results that are there."""
    PICTURE.write_text(draw(FIGURES.read_text()))
    print(f"written: {PICTURE}")


def draw(figures: str) -> str:
    """
    Draw the chart.

    :param figures: what a run wrote down, JSON
    :return: the picture, SVG
    """
    run = json.loads(figures)
    rows = [row for row in map(read, run["scenarios"]) if row is not None]
    sections = [(name, list(members)) for name, members in groupby(rows, key=lambda row: row.section)]
    foot = _foot(run["runs"])
    height = HEAD + SECTION * len(sections) + ROW * len(rows) + FOOT + LINE * len(foot)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            'role="img" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" font-size="13">',
            f"<title>{TITLE}</title><desc>{escape(_in_words(rows))}</desc>",
            f"<style>{STYLE}</style><defs>{FADE}</defs>",
            f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
            *_head(),
            *_body(sections),
            *_drawn_foot(foot, height),
            "</svg>\n",
        ]
    )


def read(scenario: dict[str, Any]) -> Row | None:
    """
    Find a row's bars in what was written down of a scenario.

    :return: the row; None if it is not meant for the chart, or Lattice itself never came to the end
    """
    named = scenario["chart"]
    if named is None:
        return None
    other = list(scenario["sides"])[1]
    ours, theirs = (_bar(scenario, side, named["figure"]) for side in ("Lattice", other))
    if ours.endless or not ours.length:
        return None
    less = "less" if scenario["unit"] == "MB" else "faster"
    return Row(named["section"], named["what"], named["until"], ours, theirs, other, _gain(ours, theirs, less))


def _bar(scenario: dict[str, Any], name: str, figure: str) -> Bar:
    side = scenario["sides"][name]
    median, tries = side["medians"].get(figure), side["tries"]
    missing = [one for one in tries if figure not in one["figures"]]
    hung = sum(not one["gave_up"] for one in missing)
    if median is None:
        failed = len(missing) > hung
        what = "gave up" if failed else f"nothing in {scenario['cap']:.0f} s"
        return Bar(scenario["cap"], what, endless=True, failed=failed)
    parts = [f"{number(median)} {scenario['unit']}"]
    parts += [f"{hung} of {len(tries)} hung"] if hung else []
    parts += [f"{len(missing) - hung} of {len(tries)} gave up"] if len(missing) > hung else []
    return Bar(median, ", ".join(parts))


def _gain(ours: Bar, theirs: Bar, less: str) -> str:
    ratio = theirs.length / ours.length
    if theirs.failed:
        return "Lattice alone"
    if theirs.endless:
        return f"> {_times(ratio)} {less}"
    if abs(ratio - 1) < SAME:
        return "the same"
    worse = "more" if less == "less" else "slower"
    return f"{_times(ratio)} {less}" if ratio > 1 else f"{_times(1 / ratio)} {worse}"


def _times(ratio: float) -> str:
    """Write a ratio, rounded down: more than was measured is never claimed."""
    return f"{int(ratio)}×" if ratio >= 10 else f"{int(ratio * 10) / 10:.1f}×"  # noqa: RUF001


def _in_words(rows: Sequence[Row]) -> str:
    return " ".join(f"{row.what}: Lattice {row.ours.text}, {row.other} {row.theirs.text}, {row.gain}." for row in rows)


def _text(x: float, y: float, words: str, kind: str, more: str = "") -> str:
    return f'<text class="{kind}" x="{x:g}" y="{y:g}"{more}>{escape(words)}</text>'


def _head() -> Iterator[str]:
    yield _text(MARGIN, 36, TITLE, "name", ' font-size="17"')
    yield _text(MARGIN, 58, "Medians. Shorter is better.", "soft", ' font-size="12"')
    yield f'<rect class="ours" x="{BARS}" y="26" width="{THICK}" height="{THICK}" rx="2"/>'
    yield _text(BARS + 20, 37, "Lattice", "name")
    yield f'<rect class="theirs" x="{BARS + 86}" y="26" width="{THICK}" height="{THICK}" rx="2"/>'
    yield _text(BARS + 106, 37, "torchrun, or torchrunx where it is named", "name")
    yield _text(BARS, 58, "The two bars of a row are to scale; every row has its own.", "soft", ' font-size="12"')


def _body(sections: Sequence[tuple[str, Sequence[Row]]]) -> Iterator[str]:
    top = HEAD
    for name, rows in sections:
        yield f'<line class="rule" x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{top + 2}" y2="{top + 2}"/>'
        yield _text(MARGIN, top + 22, name, "soft", ' font-size="12"')
        top += SECTION
        for row in rows:
            yield from _row(row, top)
            top += ROW


def _row(row: Row, top: float) -> Iterator[str]:
    yield _text(MARGIN, top + 13, row.what, "name")
    yield _text(MARGIN, top + 29, row.until, "soft", ' font-size="12"')
    scale = LONGEST / max(row.ours.length, row.theirs.length)
    for bar, kind, y in ((row.ours, "ours", top + 2), (row.theirs, "theirs", top + 18)):
        length = max(bar.length * scale, 1.5)
        fill = ' style="fill: url(#fade)"' if bar.endless else ""
        yield f'<rect class="{kind}" x="{BARS}" y="{y:g}" width="{length:.1f}" height="{THICK}" rx="1.5"{fill}/>'
        yield _text(BARS + round(length, 1) + 7, y + 11, bar.text, "soft", ' font-size="12"')
    kind = "soft" if row.gain == "the same" else "gain"
    yield _text(WIDTH - MARGIN, top + 21, row.gain, kind, ' text-anchor="end" font-size="14"')


def _foot(runs: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    for run in runs:
        begin, end = run["loads"]
        lines.append(" · ".join(run["machine"]))
        lines.append(f"{run['date']}, {run['command']}, load {begin} at the beginning, {end} at the end")
    return list(dict.fromkeys(lines))


def _drawn_foot(lines: Sequence[str], height: float) -> Iterator[str]:
    y = height - FOOT - LINE * len(lines) + 12
    yield f'<line class="rule" x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y - 12:g}" y2="{y - 12:g}"/>'
    for index, line in enumerate(lines):
        yield _text(MARGIN, y + 8 + LINE * index, line, "soft", ' font-size="11"')


if __name__ == "__main__":
    main()
