"""``lattice rl``: a look at the results of a run."""

from __future__ import annotations

from collections.abc import Sequence

from lattice.errors import UsageError
from lattice.options import values
from lattice.options.help import plain_rows
from lattice.options.option import Option
from lattice.options.parsing import Dialect, HelpAsked, parse

USAGE = """\
usage: lattice rl report WHERE [-o FILE]

Draws reward, steps per second, staleness and utilisation of a run of
lattice.rl from its results, to a PNG, an SVG or an HTML file. WHERE is a
folder or s3://bucket/prefix.
"""
OUTPUT = Option(
    "output",
    values.text,
    "report.png",
    "what to write; its name ends in .png, .svg or .html",
    "a file",
    "The report",
    "FILE",
    short="o",
)
RL = Dialect("lattice rl", (OUTPUT,), environment=False, anywhere=True)


def rl_command(words: Sequence[str]) -> int:
    """Draw a report; prints where it is."""
    try:
        parsed = parse(words, {}, RL)
    except HelpAsked:
        print(f"{USAGE}\noptions:\n{plain_rows(RL)}", end="", flush=True)
        return 0
    match parsed.entry:
        case ("report", where):
            from lattice.rl.report import draw

            try:
                print(draw(where, parsed[OUTPUT]), flush=True)
            except OSError as error:
                at = error.filename or where
                raise UsageError(f"{at}: {error.strerror or error}; lattice rl report WHERE -o FILE") from None
        case _:
            raise UsageError("lattice rl takes report WHERE; see lattice rl --help")
    return 0
