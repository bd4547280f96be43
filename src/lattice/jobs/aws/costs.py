"""What a job costs: AWS is asked, :mod:`lattice.jobs.aws.prices` knows what its answers mean."""

from __future__ import annotations

import time

from lattice.jobs.aws import plan, prices, specs
from lattice.jobs.aws.client import AwsFailed, Client
from lattice.jobs.aws.deployment import Deployment
from lattice.jobs.aws.plan import Call
from lattice.jobs.aws.sections import sections
from lattice.jobs.aws.specs import InstanceSpec, Specs
from lattice.jobs.job import Job
from lattice.jobs.progress import NodeView


def quote(job: Job) -> list[str]:
    """Say in lines what a job will cost."""
    wanted = specs.parse(specs.of(job.place_options))
    region = Client(wanted.region).region
    return prices.quote(wanted, region, sections(job, wanted), by_section(job, wanted, region))


def by_section(job: Job, wanted: Specs, region: str) -> dict[str, float | None]:
    """Give dollars an hour: of spot instances their cap, of others the list price; None where that is unknown."""
    etcd = {specs.RDZV: _price(wanted.rdzv, region)}
    return etcd | {one.name: _price(one.spec, region) for one in sections(job, wanted)}


def _price(spec: InstanceSpec, region: str) -> float | None:
    if spec.max_spot_price:
        return float(spec.max_spot_price)
    try:
        # Nobody waits long for it: it is not needed to train.
        listed = Client(prices.REGION, attempts=1, timeout=5).call(prices.query(spec.instance_type, region))
    except AwsFailed:
        return None
    return prices.hourly(listed["PriceList"])


def so_far(here: Deployment, views: list[NodeView]) -> list[NodeView]:
    """Add to nodes what they have cost so far, if their prices are known."""
    known = here.record.facts.get("prices", {})
    if not known or None in known.values():
        return views
    mine = [{"Name": f"tag:{plan.SUBMISSION}", "Values": [here.record.submission]}]
    try:
        found = list(here.client.pages(Call("ec2", "describe_instances", {"Filters": mine}), "Reservations"))
    except AwsFailed:
        return views
    instances = [one for reservation in found for one in reservation["Instances"]]
    return prices.with_costs(views, prices.spans(instances, views, here.record.since), known, time.time())
