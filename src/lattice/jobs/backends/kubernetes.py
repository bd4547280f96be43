"""Jobs on Kubernetes: a StatefulSet for each role, and an etcd of the job's own, that go with the job."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial

from lattice.errors import LatticeError
from lattice.jobs import archive
from lattice.jobs.aws.secrets import make_secrets
from lattice.jobs.backends import Save, Say, Step, Wanted
from lattice.jobs.index import SUBMITTED, Record
from lattice.jobs.job import Job, Role
from lattice.jobs.kubernetes import install, kept, plan, preflight, yamltext
from lattice.jobs.kubernetes.client import Client, KubernetesFailed
from lattice.jobs.kubernetes.deployment import Deployment
from lattice.jobs.kubernetes.following import Follower, of_rank
from lattice.jobs.kubernetes.names import JobNames
from lattice.jobs.kubernetes.order import own_store
from lattice.jobs.kubernetes.plan import Facts
from lattice.jobs.kubernetes.pods import NODE
from lattice.jobs.kubernetes.settings import settings
from lattice.jobs.kubernetes.views import is_final, views
from lattice.jobs.merging import merged
from lattice.jobs.progress import OVER, UNREACHABLE, NodeView, judge
from lattice.jobs.roles import scripts, seats, seats_of

PACE = 2.0
"""seconds between two looks while logs are followed"""
HELD = dict.fromkeys(plan.SECRETS, "***")


class KubernetesBackend:
    """Talks to clusters with the user's kubeconfig."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str], Client] = {}

    def plan(self, job: Job) -> tuple[Step, ...]:
        """Tell what a submission would make."""
        names, wanted = JobNames(job, f"{job.name}-ID"), settings(job.place_options)
        sends = job.code.upload and not job.code.source.startswith("s3://")
        facts = Facts(HELD, code=b"" if sends else None, digest="DIGEST" if sends else "")
        made = [plan.owner(names, facts), *plan.manifests(names, wanted, facts)]
        return tuple(
            Step(f"{one['kind']} {one['metadata']['name']}", tuple(yamltext.shown(one).splitlines())) for one in made
        )

    def submit(self, record: Record, save: Save, say: Say) -> Record:
        """Make it, or make what is missing."""
        job = record.job
        plan.manifests(
            JobNames(job, record.submission), settings(job.place_options), Facts(HELD)
        )  # what is wrong in it
        here = self.open(record)
        code = job.code
        sends = code.upload and not code.source.startswith("s3://")
        with archive.packed(code, say, scripts(job)) if sends else nullcontext() as packed:
            if packed is not None:
                plan.check_size(packed.size)
            if "secrets" not in record.facts:
                preflight.check(here.client, here.namespace, job, here.settings, say)
                secrets, shared = self._secrets(here.client, job)
                record = record.with_facts(namespace=here.namespace, secrets=secrets, shared=shared)
                hosts = {seat.index: f"{here.names.set_of(seat.role)}-{seat.number}" for seat in seats(job)}
                record = replace(record, hosts=hosts)
                save(record)
            content = b"".join(packed.chunks()) if packed is not None else None
            digest = packed.digest if packed is not None else ""
        self.open(record).make(content, digest, say)
        return record

    def look(self, record: Record) -> list[NodeView]:
        """Tell how its nodes stand: what they said last, and what the cluster says of their pods."""
        if (last := kept.read(record.submission)) is not None:
            return list(last.nodes)
        if "secrets" not in record.facts:
            return []
        try:
            return self._views(record)
        except LatticeError as error:  # it may be fine: nobody can tell
            return [NodeView(index, host, UNREACHABLE, report=str(error)) for index, host in record.hosts.items()]

    def logs(self, record: Record, wanted: Wanted, *, follow: bool) -> Iterator[tuple[int, bytes]]:
        """Give what the containers wrote, as long as there are pods; the end of it afterwards."""
        last = kept.read(record.submission)
        if last is not None:
            return self._kept_lines(last.logs, wanted)
        here = self.open(record)
        container = wanted.container or NODE
        seen = here.seen()
        if not any(name in seen.pods for name in record.hosts.values()) and (not follow or self._is_over(record)):
            return self._kept_lines({index: data.get("log", "") for index, data in seen.shelves.items()}, wanted)
        over: set[int] = set()
        followers = {
            index: Follower(
                here.client, (here.namespace, record.hosts[index], container), partial(over.__contains__, index)
            )
            for index in wanted.of(record.hosts)
        }
        stopped = threading.Event()

        def stop() -> None:
            stopped.set()
            for follower in followers.values():
                follower.stop()

        if follow:
            watch = threading.Thread(
                target=self._watch, args=(record, followers, over, stopped), name="watch", daemon=True
            )
            watch.start()
        readers: dict[int, Callable[[], Iterator[bytes]]] = {
            index: partial(self._lines, here, index, follower, wanted, follow=follow)
            for index, follower in followers.items()
        }
        return merged(readers, stop)

    def scale(self, record: Record, role: Role, nodes: int, save: Save, say: Say) -> Record:
        """Have another number of pods; those that ended by themselves, or cannot be reached, are replaced."""
        here = self.open(record)
        pods = here.node_pods()
        stay = {seat.index: f"{here.names.set_of(role)}-{seat.number}" for seat in seats_of(record.job, role)[:nodes]}
        for view in self._views(record):
            if view.index in stay and is_final(view):
                say(f"node {view.index} begins again")
                here.client.patch(
                    "ConfigMap", here.namespace, here.names.shelf(view.index), {"data": {"view": None, "pod": None}}
                )
                if stay[view.index] in pods:
                    here.client.delete("Pod", here.namespace, stay[view.index])
        here.bury(pods)
        here.scale(here.names.set_of(role), nodes)
        say(f"{here.names.set_of(role)} shall have {nodes} pods")
        return record

    def kill(self, record: Record, grace: float, say: Say) -> list[NodeView]:
        """End it: workers are told, and get their time to save; then all of it is removed, but the end of its logs."""
        if (last := kept.read(record.submission)) is not None:
            self._undo(record)
            return list(last.nodes)
        if "secrets" not in record.facts:
            return []
        here = self.open(record)
        here.stop(grace)
        nodes = self._views(record)
        kept.keep(record.submission, nodes, self._last_lines(here))
        self._undo(record)
        return nodes

    def remove(self, record: Record, say: Say, *, anew: bool = False) -> list[str]:
        """Delete all that it made, and tell what could not be deleted."""
        if "secrets" not in record.facts:
            return []
        left = self.open(record).undo()
        if not left:
            kept.forget(record.submission)
        return left

    def _secrets(self, client: Client, job: Job) -> tuple[dict[str, str], bool]:
        """Give the secrets of the etcd where the nodes meet, and whether that is the one for all jobs."""
        if not own_store(job, shared=False):
            return dict.fromkeys(plan.SECRETS, ""), False
        try:
            service = client.get("Service", install.NAMESPACE, install.SERVICE)
            held = client.get("Secret", install.NAMESPACE, install.NAME) if service else None
        except KubernetesFailed as error:
            if error.status != 403:
                raise
            held = None  # who may not see it gets one of their own
        if held is None:
            return make_secrets(), False
        known = {name: base64.b64decode(text).decode() for name, text in held["data"].items()}
        return {name: known[name] for name in ("certificate", "password")}, True

    def _undo(self, record: Record) -> None:
        left = self.open(record).undo()
        if left:
            raise LatticeError("some of it could not be deleted; try again:\n" + "\n".join(left))

    def _views(self, record: Record) -> list[NodeView]:
        here = self.open(record)
        seen = here.seen()
        found = views(here.names, seen)
        here.bury(seen.pods)
        view = judge(found, killed=False, job=record.job)
        over = view.until is not None and view.state in OVER and time.time() > view.until + here.settings.keep_for
        if record.state == SUBMITTED and over and seen.sets:
            here.undo(keep_result=True)  # the nodes end their pods themselves, if they are there and may
        return found

    def _is_over(self, record: Record) -> bool:
        return judge(self._views(record), killed=False, job=record.job).state in OVER

    def _last_lines(self, here: Deployment) -> dict[int, str]:
        return {index: data.get("log", "") for index, data in here.seen().shelves.items()}

    def _kept_lines(self, logs: dict[int, str] | object, wanted: Wanted) -> Iterator[tuple[int, bytes]]:
        assert isinstance(logs, dict)
        for index in wanted.of(sorted(logs)):
            lines = [of_rank(line + b"\n", wanted.rank) for line in logs[index].encode().split(b"\n")[:-1]]
            text = b"".join(line for line in lines if line is not None)
            if text and not wanted.container:
                yield index, text

    def _lines(
        self, here: Deployment, index: int, follower: Follower, wanted: Wanted, *, follow: bool
    ) -> Iterator[bytes]:
        for whole in follower.read(follow=follow):
            if (line := of_rank(whole, wanted.rank)) is not None:
                yield line
        if (
            follower.missed
        ):  # its pod went after we had looked; the end of its logs is where it is for all that are gone
            kept_log = here.shelves().get(index, {}).get("log", "")
            yield from (text for _, text in self._kept_lines({index: kept_log}, wanted))

    def _watch(self, record: Record, followers: dict[int, Follower], over: set[int], stopped: threading.Event) -> None:
        """See which nodes write no more: the log of a pod that is kept does not end by itself."""
        while not stopped.wait(PACE) and len(over) < len(followers):
            found = {view.index: view for view in self.look(record)}
            ended = judge(list(found.values()), killed=False, job=record.job).state in OVER
            here = kept.read(record.submission) is None
            for index in followers.keys() - over:
                if ended or not here or (index in found and is_final(found[index])):
                    over.add(index)
                    followers[index].interrupt()

    def open(self, record: Record) -> Deployment:
        """Give a submission in its cluster."""
        said = settings(record.job.place_options)
        key = (said.kubeconfig, said.context)
        if key not in self._clients:
            self._clients[key] = Client(*key)
        return Deployment(record, self._clients[key])


@cache
def make() -> KubernetesBackend:
    """Make the backend: one, as it remembers its connections."""
    return KubernetesBackend()
