"""
Turn recorded terminal text, colours included, into an SVG picture.

    FORCE_COLOR=1 make demo | tee demo.txt
    python -m scripts.terminal_svg demo.txt docs/demo.svg --from 'Two agents' --title 'make demo'
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

COLUMN, ROW, MARGIN, BAR = 7.8, 17.0, 14.0, 30.0
BACKGROUND, FOREGROUND = "#12161c", "#d5dbe3"
COLOURS = {
    "2": "#8a94a3",
    "31": "#f2777a",
    "32": "#8ccf7e",
    "33": "#e5c76b",
    "34": "#67b0e8",
    "35": "#c47fd5",
    "36": "#6cbfbf",
}
SEQUENCE = re.compile(r"\x1b\[([0-9;]*)m")
OTHER_SEQUENCES = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]")


def runs(line: str) -> Iterator[tuple[int, str, str]]:
    """
    Cut a line where its style changes.

    :return: column, SVG attributes and text of each part
    """
    column, at, codes = 0, 0, [""]
    for match in [*SEQUENCE.finditer(line), None]:
        text = line[at : match.start() if match else len(line)]
        if text.strip():
            colour = next((COLOURS[code] for code in codes if code in COLOURS), FOREGROUND)
            bold = ' font-weight="bold"' if "1" in codes else ""
            yield column, f'fill="{colour}"{bold}', text
        column += len(text)
        if match:
            at, codes = match.end(), match.group(1).split(";")


def picture(lines: list[str], title: str) -> str:
    """Draw lines as a window with a title."""
    plain = [SEQUENCE.sub("", line) for line in lines]
    width = max(len(line) for line in plain) * COLUMN + 2 * MARGIN
    height = len(lines) * ROW + BAR + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(title)}">',
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        *(
            f'<circle cx="{18 + 18 * place}" cy="{BAR / 2 + 3}" r="5.5" fill="{colour}"/>'
            for place, colour in enumerate(("#f2777a", "#e5c76b", "#8ccf7e"))
        ),
        f'<text x="50%" y="{BAR / 2 + 8}" text-anchor="middle" font-family="sans-serif" font-size="13" '
        f'fill="#8a94a3">{escape(title)}</text>',
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="13">',
    ]
    for row, line in enumerate(lines):
        y = BAR + MARGIN + (row + 0.75) * ROW
        for column, style, text in runs(line):
            # A stated length keeps columns in line whatever font the reader has.
            x, length = MARGIN + column * COLUMN, len(text) * COLUMN
            where = f'x="{x:.1f}" y="{y:.1f}" textLength="{length:.1f}"'
            parts.append(f'<text xml:space="preserve" {where} {style}>{escape(text)}</text>')
    return "\n".join([*parts, "</g>", "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", type=Path)
    parser.add_argument("svg", type=Path)
    parser.add_argument("--from", dest="first", default="", help="begin with the line that has this text")
    parser.add_argument("--title", default="")
    parser.add_argument("--columns", type=int, default=118, help="longer lines are cut")
    options = parser.parse_args()
    text = OTHER_SEQUENCES.sub("", options.recording.read_text()).replace("\r", "")
    lines = text.rstrip("\n").split("\n")
    begin = next((place for place, line in enumerate(lines) if options.first in line), 0)
    options.svg.write_text(picture([shortened(line, options.columns) for line in lines[begin:]], options.title))


def shortened(line: str, columns: int) -> str:
    """Cut a line that is too wide, leaving its colours alone."""
    if len(SEQUENCE.sub("", line)) <= columns:
        return line
    kept, room = "", columns - 1
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        kept += part if part.startswith("\x1b") else part[:room]
        room -= 0 if part.startswith("\x1b") else min(len(part), room)
    return kept + "…"


if __name__ == "__main__":
    main()
