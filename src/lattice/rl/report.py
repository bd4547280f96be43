"""A picture of a run, from its results alone: reward, steps per second, staleness and utilisation over steps."""

from __future__ import annotations

import base64
import html
import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from lattice.errors import LatticeError, UsageError
from lattice.rl.places import Place

KINDS = (".png", ".svg", ".html")
PAGE = """\
<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1000px; padding: 0 1em }}
img {{ width: 100% }} table {{ border-collapse: collapse }}
td {{ border-top: 1px solid #ddd; padding: .2em 1.5em .2em 0 }}
td + td {{ text-align: right; font-variant-numeric: tabular-nums }}</style></head>
<body><h1>{title}</h1><img alt="{alt}" src="data:image/png;base64,{image}">
<h2>The end of the run</h2><table>{last}</table><h2>Started with</h2><pre>{params}</pre></body></html>
"""
ALT = "reward, steps per second, staleness and utilisation over environment steps"


class NoResults(LatticeError):
    """There is nothing to draw."""


def draw(where: str, output: str) -> str:
    """
    Draw a run.

    :param where: its results: a folder, or ``s3://bucket/prefix``
    :param output: a file that ends in ``.png``, ``.svg`` or ``.html``
    :return: the file
    :raises NoResults: there are none
    :raises UsageError: the file is of another kind
    """
    path = Path(output)
    if path.suffix not in KINDS:
        raise UsageError(f"-o is {output!r}; accepted: a file that ends in {', '.join(KINDS)}")
    found = Place(where)
    rows, episodes = read_lines(found, "metrics.jsonl"), read_rewards(found)
    if not rows:
        raise NoResults(f"{where} has no metrics.jsonl with a line in it: no results of lattice.rl, or none yet.")
    picture = _picture(where, rows, episodes, "svg" if path.suffix == ".svg" else "png")
    if path.suffix == ".html":
        try:
            params = found.read("params.json").decode()
        except FileNotFoundError:
            params = "{}"
        picture = _page(where, rows[-1], params, picture).encode()
    path.write_bytes(picture)
    return str(path)


def read_lines(found: Place, name: str) -> list[dict[str, Any]]:
    """Read JSON lines; one that a crash cut off is left out."""
    try:
        text = found.read(name).decode(errors="replace")
    except FileNotFoundError:
        return []
    rows = []
    for line in text.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def read_rewards(found: Place) -> list[dict[str, Any]]:
    """Read all episodes, in order."""
    names = [name for name in found.names("rewards") if name.endswith(".jsonl")]
    return [row for name in names for row in read_lines(found, name)]


def _picture(where: str, rows: list[dict[str, Any]], episodes: list[dict[str, Any]], kind: str) -> bytes:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LatticeError("lattice rl report needs matplotlib: pip install 'lattice-addons-pytorch[rl]'") from error
    figure = Figure(figsize=(11, 7), layout="constrained")
    figure.suptitle(where)
    (reward, speed), (staleness, utilisation) = figure.subplots(2, 2, sharex=True)
    training = [one for one in episodes if one.get("kind") == "training"]
    judged = [one for one in episodes if one.get("kind") == "evaluation"]
    reward.plot(*_columns(training, "reward"), ".", color="#9db7d5", markersize=2, label="episodes")
    reward.plot(*_columns(rows, "reward_mean"), color="#1f5fa8", label="mean of the last 100")
    reward.plot(*_columns(judged, "reward"), "o-", color="#d1495b", markersize=3, label="evaluation")
    reward.set_title("reward")
    reward.legend(loc="best", fontsize="small")
    speed.plot(*_columns(rows, "steps_per_second"), color="#1f5fa8")
    speed.set_title("environment steps per second")
    staleness.plot(*_columns(rows, "staleness_max"), color="#9db7d5", label="most")
    staleness.plot(*_columns(rows, "staleness_mean"), color="#1f5fa8", label="mean")
    staleness.set_title("staleness, versions of the policy")
    staleness.legend(loc="best", fontsize="small")
    utilisation.plot(*_columns(rows, "utilisation"), color="#1f5fa8", label="updates")
    utilisation.plot(*_columns(rows, "intake"), color="#e0a458", label="taking in")
    utilisation.set_title("utilisation of the learner")
    utilisation.set_ylim(0, 1.05)
    utilisation.legend(loc="best", fontsize="small")
    for axes in (staleness, utilisation):
        axes.set_xlabel("environment steps")
    for axes in (reward, speed, staleness, utilisation):
        axes.grid(alpha=0.3)
        for life, steps in _restarts(rows):
            axes.axvline(steps, color="#888888", linestyle=":", linewidth=1, gid=f"life {life}")
    made = io.BytesIO()
    figure.savefig(made, format=kind, dpi=110)
    return made.getvalue()


def _columns(rows: list[dict[str, Any]], name: str) -> tuple[list[float], list[float]]:
    pairs = [(row["env_steps"], row[name]) for row in rows if row.get(name) is not None and "env_steps" in row]
    return [steps for steps, _ in pairs], [value for _, value in pairs]


def _restarts(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Tell where the learner was started again."""
    return [
        (row.get("life", 1), row["env_steps"])
        for before, row in pairwise(rows)
        if row.get("life") != before.get("life")
    ]


def _page(where: str, last: dict[str, Any], params: str, picture: bytes) -> str:
    cells = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(str(value))}</td></tr>" for name, value in last.items()
    )
    return PAGE.format(
        title=html.escape(where),
        alt=ALT,
        image=base64.b64encode(picture).decode(),
        last=cells,
        params=html.escape(params),
    )
