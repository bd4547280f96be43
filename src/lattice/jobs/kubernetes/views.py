"""How the nodes of a job on Kubernetes stand, decided from what the API server and the nodes' own words say. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from lattice.jobs.kubernetes.names import JobNames
from lattice.jobs.kubernetes.pods import NODE
from lattice.jobs.progress import ENDED, LEFT, LOST, PREPARED, RUNNING, NodeView
from lattice.jobs.roles import Seat, seats

Json = dict[str, Any]

OVERDUE = 10.0
"""seconds after which a pod that should have ended is one whose node does not answer"""
SETTLED = 4.0
"""seconds after which a kubelet has said of a container that it runs"""
PULLING = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a submission."""

    pods: Mapping[str, Json] = field(default_factory=dict)
    """by name"""
    sets: Mapping[str, Json] = field(default_factory=dict)
    """StatefulSets, by name"""
    shelves: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """what each node left word of, by its number"""
    events: Sequence[Json] = ()


def views(names: JobNames, seen: Seen) -> list[NodeView]:
    """Give each node's view; nodes that are not wanted at the moment only if they have been there."""
    found = []
    for seat in seats(names.job):
        name = names.set_of(seat.role)
        pod = f"{name}-{seat.number}"
        wanted = seat.number < seen.sets.get(name, {}).get("spec", {}).get("replicas", 0)
        said = _said(seen.shelves.get(seat.index, {}))
        if wanted or said is not None or pod in seen.pods:
            view = _view(names, seen, seat, pod, said)
            if view.state == LOST and wanted:
                view = replace(view, state=PREPARED)  # the cluster brings it back
            found.append(replace(view, index=seat.index, role=seat.role.name if names.job.roles else ""))
    return found


def is_final(view: NodeView) -> bool:
    """Tell whether a node has ended for good."""
    return view.state == ENDED and view.end != LEFT


def is_over(pod: Json, now: float) -> bool:
    """
    Tell whether a pod that is to end can be forgotten.

    Either nothing of it runs any more, and its node is only late to say so (a kubelet of 1.20 takes a minute, now and
    then), or its node does not answer.

    :param now: seconds since the epoch
    """
    about, status = pod["metadata"], pod.get("status", {})
    if not about.get("deletionTimestamp"):
        return False
    due = datetime.fromisoformat(about["deletionTimestamp"].replace("Z", "+00:00")).timestamp()
    containers = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    states = [one.get("state", {}) for one in containers]
    if states and all("terminated" in one for one in states):
        return True
    idle = states and not any("running" in one for one in states)
    told = due - about.get("deletionGracePeriodSeconds", 0)
    return now > (told + SETTLED if idle else due + OVERDUE)


def trouble(pod: Json, events: Sequence[Json] = ()) -> str:
    """Tell in words what keeps a pod from running; empty for nothing."""
    status = pod.get("status", {})
    if status.get("reason") == "Evicted":
        return f"evicted: {status.get('message', '').strip()}"
    if pod["metadata"].get("deletionTimestamp"):
        return "lost with its node" if status.get("reason") == "NodeLost" else "is ending"
    for one in status.get("conditions", ()):
        if one["type"] == "PodScheduled" and one["status"] == "False":
            return f"no room in the cluster: {one.get('message', one.get('reason', ''))}"
    statuses = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    for one in statuses:
        words = _container_trouble(pod, one)
        if words:
            return words
    warnings = [
        event
        for event in events
        if event.get("type") == "Warning" and event["involvedObject"].get("name") == pod["metadata"]["name"]
    ]
    if status.get("phase") == "Pending" and warnings:
        return f"{warnings[-1].get('reason')}: {warnings[-1].get('message')}"
    return ""


def refused(set_: Json, events: Sequence[Json]) -> str:
    """Tell why a StatefulSet makes no pods; empty if it has not said so."""
    name = set_["metadata"]["name"]
    said = [
        event
        for event in events
        if event["involvedObject"].get("kind") == "StatefulSet"
        and event["involvedObject"].get("name") == name
        and event.get("reason") == "FailedCreate"
    ]
    return f"no pod can be made: {said[-1].get('message')}" if said else ""


def _container_trouble(pod: Json, status: Json) -> str:
    name = status["name"]
    who = "" if name == NODE else f"{name}: "
    waiting, ended = status.get("state", {}).get("waiting"), status.get("state", {}).get("terminated")
    before = status.get("lastState", {}).get("terminated")
    if waiting and waiting.get("reason") in PULLING:
        said = waiting.get("message", "").strip()
        return f"{who}cannot pull the image {status.get('image')} ({waiting['reason']}): {said}".rstrip(": ")
    if (last := ended or before) and last.get("reason") == "OOMKilled":
        return f"{who}out of memory: killed at its limit of {_limit(pod, name)}; raise --memory"
    if waiting and waiting.get("reason") in ("CrashLoopBackOff", "RunContainerError", "CreateContainerError"):
        said = (before or {}).get("message") or waiting.get("message", "")
        code = f" with code {before['exitCode']}" if before else ""
        return f"{who}ends again and again{code} ({waiting['reason']}): {said.strip()}".rstrip(": ")
    if waiting and waiting.get("reason") == "CreateContainerConfigError":
        return f"{who}cannot be made: {waiting.get('message', '')}"
    if ended and ended.get("exitCode"):
        return f"{who}ended with code {ended['exitCode']}: {(ended.get('message') or '').strip()}".rstrip(": ")
    return ""


def _limit(pod: Json, container: str) -> str:
    both = [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    limits: dict[str, str] = next(
        (one.get("resources", {}).get("limits", {}) for one in both if one["name"] == container), {}
    )
    return str(limits.get("memory") or "its node")


def _view(names: JobNames, seen: Seen, seat: Seat, pod: str, said: NodeView | None) -> NodeView:
    if said is not None and is_final(said):
        return said
    here = seen.pods.get(pod)
    if here is None:
        if said is not None and said.state == ENDED:
            return said
        if said is not None:
            return replace(said, state=LOST, status=None, report="its pod is gone, another comes")
        words = refused(seen.sets[names.set_of(seat.role)], seen.events) if names.set_of(seat.role) in seen.sets else ""
        return NodeView(seat.index, pod, report=words or "waiting for a pod")
    words = trouble(here, seen.events)
    if said is None or seen.shelves[seat.index].get("pod") != here["metadata"].get("uid"):
        # What was said was said in another pod, which this one replaces.
        return NodeView(seat.index, pod, PREPARED, report=words or "starting")
    if said.state == RUNNING and not _ended(here):
        return replace(said, report=words)
    if said.state == ENDED:
        return said  # it has left, and its pod goes
    return replace(said, state=LOST, status=None, report=words or said.report)


def _ended(pod: Json) -> bool:
    """Tell whether a node's container has ended: that it runs its kubelet says later than itself."""
    statuses = pod.get("status", {}).get("containerStatuses", ())
    own: Json = next((one.get("state", {}) for one in statuses if one["name"] == NODE), {})
    again = own.get("waiting", {}).get("reason") == "CrashLoopBackOff"
    return "terminated" in own or again or pod.get("status", {}).get("phase") in ("Failed", "Succeeded")


def _said(shelf: Mapping[str, str]) -> NodeView | None:
    try:
        return NodeView.load(json.loads(shelf["view"]))
    except (KeyError, ValueError, TypeError):
        return None
