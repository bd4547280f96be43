"""What a job is made of and how each part stands, in lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lattice.jobs.kubernetes.names import JobNames
from lattice.jobs.kubernetes.views import Seen, refused, trouble

Json = dict[str, Any]


def lines(names: JobNames, namespace: str, seen: Seen, others: Sequence[tuple[str, str]]) -> Iterator[str]:
    """
    Tell all of it.

    :param others: kind and name of what has no state
    """
    yield f"{names.job.name}: submission {names.submission} in namespace {namespace}"
    for name, one in sorted(seen.sets.items()):
        status = one.get("status", {})
        yield f"StatefulSet {name}: {status.get('readyReplicas', 0)} of {one['spec']['replicas']} pods are ready"
        if words := refused(one, seen.events):
            yield f"  {words}"
        for pod in sorted(pod for pod in seen.pods if pod.rpartition("-")[0] == name):
            yield from _pod(pod, seen.pods[pod], seen.events)
    for kind, name in others:
        yield f"{kind} {name}"
    if seen.events:
        yield "Events:"
    for event in seen.events:
        times = event.get("count") or 1
        often = f" ({times} times)" if times > 1 else ""
        yield f"  {event['involvedObject'].get('name')}: {event.get('reason')}: {event.get('message')}{often}"


def _pod(name: str, pod: Json, events: Sequence[Json]) -> Iterator[str]:
    status = pod.get("status", {})
    node, address = pod["spec"].get("nodeName", "no node"), status.get("podIP", "no address")
    words = trouble(pod, events)
    yield f"  Pod {name}: {status.get('phase', 'Pending')} on {node}, {address}" + (f": {words}" if words else "")
    for one in status.get("containerStatuses", ()):
        state = next(iter(one.get("state", {"waiting": {}})))
        again = f", started again {one['restartCount']} times" if one.get("restartCount") else ""
        yield f"    {one['name']}: {state}{again}, {one['image']}"
