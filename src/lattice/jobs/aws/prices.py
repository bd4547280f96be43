"""What instances cost: how AWS is asked, what its answer means, how it is told. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from lattice.jobs.aws.plan import Call
from lattice.jobs.aws.sections import Section
from lattice.jobs.aws.specs import RDZV, WORKER, InstanceSpec, Specs
from lattice.jobs.progress import NodeView

REGION = "us-east-1"
"""where the price list is served, for all regions"""
RUNNING = ("pending", "running", "stopping", "shutting-down")


@dataclass(frozen=True, slots=True)
class Span:
    """One instance's life so far."""

    instance: str
    section: str
    """rdzv, and worker or a role"""
    since: float
    until: float | None
    """None while it lives"""


def query(instance_type: str, region: str) -> Call:
    """Ask for the price of a type on demand, with Linux, on hardware that is shared."""
    wanted = {
        "instanceType": instance_type,
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
    }
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
    return Call("pricing", "get_products", {"ServiceCode": "AmazonEC2", "Filters": filters})


def hourly(products: Iterable[str]) -> float | None:
    """
    Find the price in a price list.

    :param products: texts of JSON
    :return: dollars an hour, the highest if there are several; None if none is there
    """
    found = []
    for text in products:
        terms = json.loads(text).get("terms", {}).get("OnDemand", {})
        for dimension in (one for term in terms.values() for one in term["priceDimensions"].values()):
            if dimension["unit"] == "Hrs" and "USD" in dimension["pricePerUnit"]:
                found.append(float(dimension["pricePerUnit"]["USD"]))
    return max((price for price in found if price > 0), default=None)


def quote(specs: Specs, region: str, workers: Sequence[Section], prices: Mapping[str, float | None]) -> list[str]:
    """
    Say what a job will cost.

    :param workers: the kinds of nodes that it has
    :param prices: dollars an hour by section
    """
    lines, total = [], 0.0
    counted: list[tuple[str, int, InstanceSpec]] = [(one.name, one.begins, one.spec) for one in workers]
    for section, count, spec in ((RDZV, 1, specs.rdzv), *counted):
        price = prices.get(section)
        total = total + count * price if price is not None else float("nan")
        at_most = "at most " if spec.max_spot_price else ""
        each = "price unknown" if price is None else f"{at_most}{dollars(price)} an hour each"
        kind = f"{spec.instance_type}{' spot' if spec.max_spot_price else ''}"
        lines.append(f"{count} x {kind} in {region} ({_called(section)}): {each}")
    at_most = "at most " if specs.rdzv.max_spot_price or specs.worker.max_spot_price else ""
    whole = "unknown" if total != total else f"{at_most}{dollars(total)} an hour"  # nan is not itself
    begins, most = sum(one.begins for one in workers), sum(one.most for one in workers)
    lines.append(
        f"in all: {whole}, without volumes, traffic and EFS" + (f"; up to {most} workers" if most > begins else "")
    )
    return lines


def _called(section: str) -> str:
    return {RDZV: "etcd", WORKER: "workers"}.get(section, section)


def dollars(amount: float) -> str:
    """Write an amount: cents, and more digits where there would be too few."""
    return f"${amount:.2f}" if amount >= 1 else f"${amount:.4f}".rstrip("0").ljust(5, "0")


def spans(instances: Sequence[Mapping[str, Any]], views: Sequence[NodeView], began: float) -> list[Span]:
    """
    Tell how long each instance has lived.

    :param instances: as EC2 describes them, which it does for an hour after their end
    :param views: nodes as their journals tell of them, which stay
    :param began: when the job was submitted
    """
    ends = {view.host: view.until for view in views if view.until is not None}
    found = []
    for one in instances:
        section = next((tag["Value"] for tag in one.get("Tags", ()) if tag["Key"] == "lattice:section"), WORKER)
        lives = one["State"]["Name"] in RUNNING
        since = one["LaunchTime"].timestamp()
        until = None if lives else _end(one) or ends.get(one["InstanceId"], max((*ends.values(), since)))
        found.append(Span(one["InstanceId"], section, since, until))
    known = {span.instance for span in found}
    gone = [view for view in views if view.host not in known and view.since]
    found += [Span(view.host, view.role or WORKER, view.since, view.until or view.since) for view in gone]
    if ends and not any(span.section == RDZV for span in found):
        found.append(Span("", RDZV, began, max(ends.values())))
    return found


def _end(instance: Mapping[str, Any]) -> float | None:
    """Read when an instance ended out of the words that EC2 has for why; None if they do not say."""
    found = re.search(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)", instance.get("StateTransitionReason", ""))
    return datetime.fromisoformat(f"{found[1]}+00:00").timestamp() if found else None


def with_costs(
    views: Sequence[NodeView], lived: Sequence[Span], prices: Mapping[str, float | None], now: float
) -> list[NodeView]:
    """
    Add to nodes what they have cost so far; the first one carries etcd's instance, and those that were replaced.

    :param views: the nodes, whose hosts are instances
    :param lived: how long instances have lived
    :param prices: dollars an hour by section; nothing is added if one is unknown
    """
    if any(price is None for price in prices.values()):
        return list(views)
    costs = {span.instance: _cost(span, prices, now) for span in lived}
    others = sum(cost for instance, cost in costs.items() if instance not in {view.host for view in views})
    return [
        replace(view, cost=costs.get(view.host, 0.0) + (0.0 if position else others))
        for position, view in enumerate(views)
    ]


def _cost(span: Span, prices: Mapping[str, float | None], now: float) -> float:
    seconds = max((now if span.until is None else span.until) - span.since, 60.0)  # AWS takes a minute at least
    return seconds / 3600 * (prices[span.section] or 0.0)
