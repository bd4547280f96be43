"""How a job stands, decided from what its nodes' journals say. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from lattice.jobs import roles
from lattice.jobs.job import Job
from lattice.jobs.roles import Seat, seats

PREPARED, RUNNING, ENDED, LOST, UNREACHABLE = "prepared", "running", "ended", "lost", "unreachable"
"""what can be known of a node's agent"""
WAITING, SUCCEEDED, FAILED, KILLED, UNKNOWN = "waiting", "succeeded", "failed", "killed", "unknown"
"""further states of a job; it can be running and lost, too"""
OVER = (SUCCEEDED, FAILED, KILLED, LOST)
LEFT = "left"
RUN_ENDED = "run ended"
JOB_ENDED = "job ended"
"""how an agent ended: asked to leave, with its run, or because another role's run ended the job"""


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node of a job as it looks now."""

    index: int
    host: str = ""
    state: str = PREPARED
    pid: int = 0
    status: int | None = None
    """exit code of its agent"""
    end: str = ""
    """how its agent ended: the journal's word for it"""
    report: str = ""
    """the agent's last words"""
    workers: int = 0
    round: int = 0
    nodes: int = 0
    world: int = 0
    restarts: int = 0
    ranks: tuple[int, int] | None = None
    trouble: str = ""
    """what ended the round before"""
    goodput: float | None = None
    since: float = 0.0
    """when its agent started, seconds since 1970"""
    until: float | None = None
    cost: float | None = None
    """US dollars so far, where the place tells"""
    role: str = ""
    """what it does in the job, if its nodes do not all do the same"""

    def dump(self) -> dict[str, Any]:
        """Give it as JSON can hold it."""
        return asdict(self)

    @staticmethod
    def load(fields: dict[str, Any]) -> NodeView:
        """Make it again from what :meth:`dump` gave."""
        ranks = fields.pop("ranks", None)
        return NodeView(**fields, ranks=None if ranks is None else (ranks[0], ranks[1]))


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as it looks now."""

    state: str
    status: int | None
    """the exit code of a job that is over"""
    nodes: tuple[NodeView, ...]
    workers: int = 0
    restarts: int = 0
    trouble: str = ""
    goodput: float | None = None
    since: float = 0.0
    until: float | None = None
    cost: float | None = None
    """US dollars so far, where the place tells"""


def read_journal(lines: Iterable[bytes | str], view: NodeView) -> NodeView:
    """
    Take in what an agent wrote down.

    :param lines: of its journal; a last one that is not whole is left out
    :param view: what is known besides
    """
    for line in lines:
        try:
            said = json.loads(line)
        except ValueError:
            continue
        match said.get("event"):
            case "agent started":
                view = replace(
                    NodeView(view.index, view.host or said["host"], pid=view.pid),
                    workers=said["workers"],
                    since=view.since or _moment(said),
                )
            case "round started":
                first = said["round"] == 1 or said["reason"] == "first round"
                view = replace(
                    view,
                    round=said["round"],
                    restarts=said["restarts"],
                    nodes=said["nodes"],
                    world=said["world"],
                    trouble="" if first else said["reason"],
                )
            case "workers started":
                view = replace(view, ranks=(said["ranks"][0], said["ranks"][1]))
            case "goodput":
                view = replace(view, goodput=said["goodput"])
            case event if "status" in said:
                view = replace(
                    view,
                    state=ENDED,
                    status=said["status"],
                    end=event,
                    report=said.get("reason") or "",
                    until=_moment(said),
                )
            case _:
                pass
    return view


def judge(nodes: Sequence[NodeView], *, killed: bool, job: Job | None = None) -> JobView:
    """
    Tell how a job stands.

    :param nodes: all that is known
    :param killed: whether somebody asked for its end
    :param job: what it is; may be left out if its nodes all do the same
    """
    cast = {seat.index: seat for seat in seats(job)} if job is not None and job.roles else {}
    nodes = [replace(node, role=cast[node.index].role.name) if node.index in cast else node for node in nodes]
    ending = {index: roles.ends_job(job, seat.role) for index, seat in cast.items()} if job is not None else {}
    runs = _runs(nodes, cast)
    ends = _ends(nodes, ending)
    living = [node for node in nodes if node.state in (RUNNING, UNREACHABLE)]
    state, status = _state(nodes, ends, living, _newest(runs[0]), ending, killed=killed)
    over = state in OVER
    costs = [node.cost for node in nodes if node.cost is not None]
    goodputs = [node.goodput for node in runs[0] if node.goodput is not None]
    return JobView(
        state=state,
        status=status,
        nodes=tuple(nodes),
        workers=sum(_workers(run) for run in runs),
        restarts=sum(max((node.restarts for node in run), default=0) for run in runs),
        trouble=_trouble(runs, [node for node in ends if node.status]),
        goodput=sum(goodputs) / len(goodputs) if goodputs else None,
        since=min((node.since for node in nodes if node.since), default=0.0),
        until=max((node.until for node in nodes if node.until is not None), default=None) if over else None,
        cost=sum(costs) if costs else None,
    )


def ends_job(node: NodeView, when: str) -> bool:
    """
    Tell whether a job ended with a node.

    :param when: its run's end is the job's: always, failure, never
    """
    return node.end == JOB_ENDED or (
        node.end == RUN_ENDED and (when == "always" or (when == "failure" and bool(node.status)))
    )


def waits_for(view: JobView) -> str:
    """Say what a job waits for that has not begun; nothing if it has."""
    if view.state != WAITING:
        return ""
    there = sum(node.state == RUNNING for node in view.nodes)
    reasons = dict.fromkeys(node.report for node in view.nodes if node.state == PREPARED and node.report)
    return ", ".join([f": {there} of {len(view.nodes)} nodes are there", *reasons])


def _runs(nodes: Sequence[NodeView], cast: Mapping[int, Seat]) -> list[list[NodeView]]:
    """Put nodes together that are of one run, that of the primary role first."""
    found: dict[str, list[NodeView]] = {cast[0].group if cast else "": []}
    for node in nodes:
        found.setdefault(cast[node.index].group if node.index in cast else "", []).append(node)
    return list(found.values())


def _newest(run: Sequence[NodeView]) -> NodeView:
    return max(run, key=lambda node: (node.round, node.since), default=NodeView(0))


def _workers(run: Sequence[NodeView]) -> int:
    living = [node for node in run if node.state in (RUNNING, UNREACHABLE)]
    newest = _newest(run)
    return newest.world if living and newest.round else sum(node.workers for node in living)


def _ends(nodes: Sequence[NodeView], ending: Mapping[int, str]) -> list[NodeView]:
    """Give the nodes that know how the job ended, those who know best first: who was told is right in any case."""
    found = [node for node in nodes if ends_job(node, ending.get(node.index, "always"))]
    return sorted(found, key=lambda node: (node.end != JOB_ENDED, ending.get(node.index, "always") != "always"))


def _state(
    nodes: Sequence[NodeView],
    ends: Sequence[NodeView],
    living: Sequence[NodeView],
    newest: NodeView,
    ending: Mapping[int, str],
    *,
    killed: bool,
) -> tuple[str, int | None]:
    if ends and not living:
        return (SUCCEEDED, 0) if ends[0].status == 0 else (FAILED, ends[0].status)
    if living:
        return (RUNNING if newest.round else WAITING), None
    if killed:
        return KILLED, 143
    failures = [node for node in nodes if node.status and _counts(node, ending.get(node.index, "always"))]
    if failures:
        return FAILED, failures[0].status
    if any(node.state == PREPARED for node in nodes):
        return WAITING, None
    return LOST, 1


def _counts(node: NodeView, ends: str) -> bool:
    """Tell whether the failure of a node is the job's; one that was sent away did not fail."""
    return ends == "always" or (ends == "failure" and node.end != LEFT)


def _trouble(runs: Sequence[Sequence[NodeView]], ends: Sequence[NodeView]) -> str:
    """Say what went wrong: what ended the job, else a run, else the round before the last."""
    failed = [node for run in runs for node in run if node.end == RUN_ENDED and node.status]
    first = next((node for node in failed if node in ends), next(iter([*ends, *failed]), None))
    if first is not None:
        cause = _cause(first.report)
        return f"{first.role}: {cause}" if first.role and first.end == RUN_ENDED else cause
    for newest in map(_newest, runs):
        if newest.trouble:
            return f"{newest.role}: {newest.trouble}" if newest.role else newest.trouble
    return ""


def _cause(report: str) -> str:
    """Give the line of a report that names who failed first."""
    lines = [line.strip() for line in report.splitlines()]
    return lines[1] if len(lines) > 1 else (lines[0] if lines else "")


def _moment(said: dict[str, Any]) -> float:
    return datetime.fromisoformat(said["time"]).timestamp()
