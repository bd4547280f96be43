"""The page: the table, the machine that it was made on, and how to read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.measure import Series, Sides
from benchmarks.results import Compared, Run, runs
from benchmarks.scenarios import Scenario

NOTES = {
    "torchrun": """\
- All sides are tried in turns (A B A B). A cell is the median, the range in brackets, and the number of tries.
- *CPU s*, Lattice / torchrun, says more than the wall clock on a busy machine. For *start* it is all that ran until
  then (the whole command to its end where nothing is imported, otherwise everybody, workers included, to the group);
  for *memory* all that runs, up to the measurement, of which the first two rows leave out the workers; for *training*
  what agents and helpers used during all steps; otherwise what they used from the fault to the new group.
- The workers' script imports torch at its top. torchrun's workers do that one by one, at the start and after each
  fault; Lattice's are forked from one interpreter per node that has. Its memory, shared with the workers, and that of
  the workers that it has forked ahead for the next restart are in the row on 8 workers, and in no other.
- Proportional: a page that several processes share counts by its share, so that a sum counts it once.
- *No supervisor*: two plain processes with the same variables. A difference is not measurable if it is smaller than
  that between the least and the greatest of their own tries.
- *None in* so many seconds: neither a new group nor an end. *Gave up*: all 3 restarts were used up before a new group
  worked. Both are left out of the medians and ratios.
- torchrun's last node goes, never the one that holds its c10d store: that would be the end of the run.
- Before a node goes, the round has lived for more than 10 s. Lattice's `lease_ttl` is 5 s, its default.\
""",
    "torchrunx": """\
- The same script for both: two workers on this host, a gloo process group, everything else as it comes. torchrunx is
  installed from PyPI into an environment of its own, with the very same torch.
- *From the command* counts Python's start and all imports; *from the call* only the launch itself. torchrunx has no
  pool: beside it stands its second launch.
- *CPU s* is all that ran, workers included, from the command to the end of the last process.
- *Lost* are lines that were not among all that the launcher had printed or written to files when it ended.
- Memory is proportional, looked at 20 times a second, in tries of their own: the most that the launcher, and the agent
  with its helpers but without workers, held. What lies in memory without belonging to a process is in *all that was
  taken from the machine*: by how much the memory that it calls available was less than before.\
""",
}


def document(compared: Sequence[Compared]) -> str:
    """Write the whole page."""
    known = runs(compared)
    lines = ["# Lattice beside torchrun and torchrunx", "", *(f"- {fact}" for fact in _facts(known)), ""]
    for other, notes in NOTES.items():
        rows = [one for one in compared if one.sides.theirs.name == other]
        if rows:
            lines += [f"## {other}", "", *table(rows, known), "", notes, ""]
    return "\n".join(lines)


def _facts(known: Sequence[Run]) -> Iterator[str]:
    for place, run in enumerate(known):
        yield (
            f"{_number_of(place)}{run.date}, `{run.command}`, {max(run.took / 60, 1):.0f} minutes, load of the machine "
            f"{run.loads[0]} at the beginning, {run.loads[1]} at the end (the benchmark's own included)"
        )
        yield from (fact for fact in run.machine if not place or fact not in known[place - 1].machine)


def _number_of(place: int) -> str:
    """Tell the rows of a later run from those of the first."""
    return f"({place + 1}) " if place else ""


def table(compared: Sequence[Compared], known: Sequence[Run]) -> list[str]:
    """
    Write the results as a table.

    :param compared: results beside one and the same other side
    :param known: the runs that they are of
    """
    header = ("what", "Lattice", compared[0].sides.theirs.name, "ratio", "for comparison", "CPU s", "expected")
    lines = [_row(*header), "| --- | ---: | ---: | ---: | ---: | ---: | --- |"]
    for one in compared:
        scenario, sides = one.scenario, one.sides
        cpu = " / ".join(number(side.cpu) for side in (sides.ours, sides.theirs))
        run = _number_of(known.index(one.run))
        lines.append(_row(f"{run}**{scenario.title}**", "", "", "", "", cpu, ""))
        for figure in sides.figures:
            cells = [_cell(side, figure, scenario) for side in (sides.ours, sides.theirs)]
            third = f"{sides.third.name}: {_cell(sides.third, figure, scenario)}" if sides.third else ""
            lines.append(_row(f"… {figure}", *cells, _ratio(sides, figure), third, "", _verdicts(one, figure)))
    return lines


def missed(compared: Sequence[Compared]) -> list[str]:
    """List the scenarios in which Lattice did not reach what is expected of it."""
    return [
        one.scenario.name
        for one in compared
        if any(not expectation.holds(one.sides) for expectation in one.scenario.expected)
    ]


def number(value: float | None) -> str:
    """Write a figure with as many digits as mean something."""
    if value is None:
        return "–"  # noqa: RUF001
    if not value:
        return "0"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(series: Series, figure: str, scenario: Scenario) -> str:
    count = len(series.tries)
    hung, gave_up = series.missing(figure)
    median, spread = series.median(figure), series.spread(figure)
    parts = []
    if median is not None and spread is not None:
        span = f"[{number(spread[0])}–{number(spread[1])}]"  # noqa: RUF001
        parts.append(f"{number(median)} {scenario.unit_of(figure)} {span} ×{count - hung - gave_up}")  # noqa: RUF001
    if hung:
        parts.append(f"{hung} of {count} none in {scenario.cap:.0f} s")
    if gave_up:
        parts.append(f"{gave_up} of {count} gave up")
    return ", ".join(parts)


def _ratio(sides: Sides, figure: str) -> str:
    mine, other = sides.ours.median(figure), sides.theirs.median(figure)
    return f"{other / mine:.1f}×" if mine and other else ""  # noqa: RUF001


def _verdicts(one: Compared, figure: str) -> str:
    unit = one.scenario.unit_of(figure)
    return "; ".join(
        f"{expectation.asked(one.sides, unit)}: {'yes' if expectation.holds(one.sides) else '**no**'}"
        for expectation in one.scenario.expected
        if expectation.figure == figure
    )
