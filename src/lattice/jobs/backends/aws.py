"""Jobs on AWS: groups of instances, for etcd and for workers or each of the roles, that end with the job."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial

from lattice.errors import LatticeError, UsageError
from lattice.jobs.aws import costs, plan, specs, upload
from lattice.jobs.aws.client import AwsFailed, Client
from lattice.jobs.aws.deployment import Deployment
from lattice.jobs.aws.plan import LEASE, Call
from lattice.jobs.aws.secrets import make_secrets
from lattice.jobs.aws.sections import sections
from lattice.jobs.aws.tail import Tail, line_of
from lattice.jobs.aws.views import views_of_all
from lattice.jobs.backends import Save, Say, Step, Wanted
from lattice.jobs.index import SUBMITTED, Record
from lattice.jobs.job import Job, Role
from lattice.jobs.progress import RUNNING, UNREACHABLE, NodeView
from lattice.jobs.roles import roles

POLL = 2.0
START_TIMEOUT = 120.0
"""seconds that a submission watches its instances come"""
PATIENTLY = ("sufficient", "InsufficientInstanceCapacity", "UnfulfillableCapacity", "no Spot capacity")
"""words of a failure that passes; a quota that is too small speaks of capacity, too"""
QUIET_LOOKS = 3
"""looks at a log without anything new after which nothing late is waited for"""
OWN_OPTIONS = ("rdzv_backend", "rdzv_endpoint")


class AwsBackend:
    """Talks to AWS with the user's credentials."""

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}
        self._cache: dict[tuple[str, str], bytes] = {}
        self._looked: dict[str, float] = {}
        self._renewed: dict[str, float] = {}

    def plan(self, job: Job) -> tuple[Step, ...]:
        """Tell what a submission would make."""
        wanted = self._wanted(job, specs.of(job.place_options))
        called = plan.names(job, f"{job.name}-ID", wanted)
        made = plan.resources(
            _without_values(job),
            wanted,
            called,
            region=wanted.region or "REGION",
            images={name: plan.image_parameter(spec) for name, spec in self._kinds(job, wanted).items()},
            code=upload.destination(job.code, f"s3://{called.bucket}/{called.code('DIGEST')}", "DIGEST"),
            secrets=dict.fromkeys(plan.SECRETS, "***"),
            deadline="IN AN HOUR",
        )
        return tuple(Step(f"{one.kind} {one.name}", plan.shown(one)) for one in made)

    def quote(self, job: Job) -> list[str]:
        """Say what it costs."""
        return costs.quote(job)

    def submit(self, record: Record, save: Save, say: Say) -> Record:
        """Make it, or make what is missing."""
        if "specs" not in record.facts:
            record = record.with_facts(specs=specs.of(record.job.place_options))
        wanted = self._wanted(record.job, record.facts["specs"])
        for notice in wanted.notices():
            say(notice)
        here = self._open(record)
        if "secrets" not in record.facts:
            # Asks all that can be wrong before anything is made: credentials, region, bucket.
            kinds = self._kinds(record.job, wanted)
            images = {name: self._image(here, spec) for name, spec in kinds.items()}
            here.keys()
            facts = {"region": here.client.region, "secrets": make_secrets(), "images": images}
            facts["prices"] = costs.by_section(record.job, wanted, here.client.region)
            record = record.with_facts(**facts)
            self._open(record).check_names(say)
            record = replace(record, hosts=dict.fromkeys(range(record.job.size.maximum), "aws"))
            save(record)
        record = upload.send(record, self._open(record), save, say)
        here = self._open(record)
        here.make(say)
        self._watch_start(here, say)
        begins = {one.name: one.begins for one in sections(record.job, wanted)}
        return record.with_facts(nodes=begins if record.job.roles else begins[specs.WORKER])

    def look(self, record: Record) -> list[NodeView]:
        """Tell how its nodes stand: the group says who is there, each one's journal how far it is."""
        if "specs" not in record.facts:
            return []
        self._pace(record.submission)
        try:
            return self._views(record)
        except LatticeError as error:  # it may be fine: nobody can tell
            return [NodeView(index, host, UNREACHABLE, report=str(error)) for index, host in record.hosts.items()]

    def _views(self, record: Record) -> list[NodeView]:
        here = self._open(record)
        parts = here.parts()
        present = any(part.seen.present for part in parts)
        if present and record.state == SUBMITTED:
            self._renew(here)
        if not present and any(part.seen.ended() for part in parts) and here.exist():
            here.undo(lambda _: None, groups_last=True)  # the run has ended its instances; the rest of it goes now
        return costs.so_far(here, views_of_all(parts))

    def logs(self, record: Record, wanted: Wanted, *, follow: bool) -> Iterator[tuple[int, bytes]]:
        """Give what CloudWatch has of the agents' output; with a rank its lines only, as that worker wrote them."""
        here, tail = self._open(record), Tail()
        quiet = 0
        places: dict[str, int] = {}
        while True:
            over = not follow or not self._goes_on(here)
            new = tail.new(self._events(here, tail.start))
            for event in new:
                instance = event["logStreamName"].rpartition("/")[2]
                if instance not in places:
                    known = {view.host: view.index for view in self.look(record)}
                    places[instance] = known.get(instance, len(places))
                line = line_of(event["message"], wanted.rank)
                if line is not None and wanted.of([places[instance]]):
                    yield places[instance], line
            quiet = 0 if new else quiet + 1
            if not follow or (over and quiet >= QUIET_LOOKS):
                return
            time.sleep(POLL)

    def scale(self, record: Record, role: Role, nodes: int, save: Save, say: Say) -> Record:
        """Have another number of instances."""
        here = self._open(record)
        several = bool(record.job.roles)
        record = record.with_facts(nodes={**record.facts["nodes"], role.name: nodes} if several else nodes)
        save(record)
        group = here.called.group(role.name) if several else here.called.group()
        here.client.call(plan.resize(group, nodes, role.size.maximum))
        say(f"{group} shall have {nodes} instances")
        return record

    def kill(self, record: Record, grace: float, say: Say) -> list[NodeView]:
        """End it: workers are told, and get their time to save; then all that bills is removed."""
        if "specs" not in record.facts:
            return []
        here = self._open(record)
        if any(view.state == RUNNING for view in self._views(record)):
            say("telling the workers")
            here.client.call(plan.put(here.called.bucket, f"{here.called.folder}/{plan.KILL}", b""))
            deadline = time.monotonic() + grace
            while any(view.state == RUNNING for view in self.look(record)) and time.monotonic() < deadline:
                time.sleep(POLL)
        left = here.undo(say)
        if left:
            raise LatticeError("some of it could not be deleted; try again:\n" + "\n".join(left))
        return self._views(record)

    def remove(self, record: Record, say: Say, *, anew: bool = False) -> list[str]:
        """Delete all that it made, and tell what could not be deleted."""
        if "specs" not in record.facts:
            return []
        here = self._open(record)
        left = here.undo(say)
        for clear in (partial(here.clear, keep_code=anew), here.clear_logs):
            try:
                clear()
            except AwsFailed as error:
                if error.code != "NoSuchBucket":
                    left.append(str(error))
        return left

    def _wanted(self, job: Job, content: object) -> specs.Specs:
        options = {name for role in roles(job) for name, _ in role.run_options}
        given = [name for name in OWN_OPTIONS if name in options]
        if given:
            raise UsageError(f"--{given[0]} has no meaning with --on aws: the job gets an etcd of its own")
        return specs.parse(content)

    def _kinds(self, job: Job, wanted: specs.Specs) -> dict[str, specs.InstanceSpec]:
        """Give all kinds of instances that a job has."""
        return {specs.RDZV: wanted.rdzv, **{one.name: one.spec for one in sections(job, wanted)}}

    def _watch_start(self, here: Deployment, say: Say) -> None:
        """Watch the instances come for a while; what AWS will never start is an error now."""
        deadline = time.monotonic() + START_TIMEOUT
        told = ""
        while True:
            seen = {here.called.group(part.role or specs.WORKER): part.seen for part in here.parts()}
            seen[here.called.rdzv] = here.etcd()
            present = sum(len(one.present) for one in seen.values())
            wanted = sum(one.wanted for one in seen.values())
            troubles = {group: one.trouble for group, one in seen.items() if one.trouble}
            text = f"{present} of {wanted} instances are there"
            text += f": {'; '.join(troubles.values())}" if troubles else ""
            if text != told:
                say(text)
                told = text
            for group, trouble in troubles.items():
                if not any(word in trouble for word in PATIENTLY):
                    raise AwsFailed(f"AWS starts no instances for {group}: {trouble}")
            if present >= wanted or time.monotonic() > deadline:
                return
            time.sleep(POLL)

    def _goes_on(self, here: Deployment) -> bool:
        seen = [part.seen for part in here.parts()]
        return any(one.present or one.wanted for one in seen) and not any(one.ended() for one in seen)

    def _events(self, here: Deployment, start: int) -> Iterator[dict[str, object]]:
        own = f"{here.called.submission}/"
        asked = {"logGroupName": here.called.log_group, "logStreamNamePrefix": own, "startTime": start}
        try:
            for event in here.client.pages(Call("logs", "filter_log_events", asked), "events"):
                if event["logStreamName"].startswith(own):  # moto gives all
                    yield event
        except AwsFailed as error:
            if error.code != "ResourceNotFoundException":
                raise

    def _pace(self, submission: str) -> None:
        """Ask AWS no more often than it likes."""
        last = self._looked.get(submission)
        if last is not None:
            time.sleep(max(last + POLL - time.monotonic(), 0.0))
        self._looked[submission] = time.monotonic()

    def _renew(self, here: Deployment) -> None:
        """Move the lease while we wait; a single look at a forgotten job must not keep it alive."""
        now = time.monotonic()
        last = self._renewed.setdefault(here.called.submission, now)
        if now - last > LEASE.total_seconds() / 4:
            self._renewed[here.called.submission] = now
            try:
                here.renew()
            except AwsFailed:
                pass  # the leading node does it, too

    def _image(self, here: Deployment, spec: specs.InstanceSpec) -> str:
        found = here.client.call(Call("ssm", "get_parameter", {"Name": plan.image_parameter(spec)}))
        return str(found["Parameter"]["Value"])

    def _open(self, record: Record) -> Deployment:
        region = record.facts.get("region") or specs.parse(record.facts["specs"]).region
        if region not in self._clients:
            self._clients[region] = Client(region)
        return Deployment(record, self._clients[region], self._cache)


def _without_values(job: Job) -> Job:
    """Give a job for a reader: its variables may be secret."""
    cast = tuple(replace(role, environment=_hidden(role.environment)) for role in job.roles)
    return replace(job, environment=_hidden(job.environment), roles=cast)


def _hidden(environment: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    return tuple((name, "***") for name, _ in environment)


@cache
def make() -> AwsBackend:
    """Make the backend: one, as it remembers what it has read."""
    return AwsBackend()
