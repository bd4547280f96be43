"""What a job costs: AWS's answers, and what is said of them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from lattice.jobs.aws import prices
from lattice.jobs.aws.prices import Span, dollars, hourly, query, quote, spans, with_costs
from lattice.jobs.aws.sections import Section
from lattice.jobs.aws.specs import of_type, parse
from lattice.jobs.progress import ENDED, RUNNING, NodeView, judge
from tests.jobs.aws.conftest import Cloud
from tests.jobs.aws.price_list import price_list, product
from tests.jobs.aws.test_specs import given
from tests.waiting import patience

BEGAN = 1_000_000.0
HOUR = 3600.0


def test_the_price_is_what_is_taken_for_an_hour_on_demand() -> None:
    assert hourly([product(3.06)]) == 3.06
    assert hourly([product(3.06), product(4.0)]) == 4.0, "rather too much than too little"
    reserved = json.dumps({"terms": {"Reserved": {"a": {}}}})
    other = json.loads(product(3.06).replace('"Hrs"', '"Quantity"'))
    assert hourly([reserved, json.dumps(other), product(0.0)]) is None
    assert hourly([]) is None


def test_a_type_is_asked_for_as_it_is_run() -> None:
    call = query("p3.2xlarge", "eu-west-1")
    assert (call.service, call.operation) == ("pricing", "get_products")
    asked = {one["Field"]: one["Value"] for one in call.arguments["Filters"]}
    assert asked["instanceType"] == "p3.2xlarge" and asked["regionCode"] == "eu-west-1"
    assert asked["operatingSystem"] == "Linux" and asked["tenancy"] == "Shared"


@pytest.mark.parametrize(
    ("amount", "text"), [(3.06, "$3.06"), (1234.5, "$1234.50"), (0.085, "$0.085"), (0.5, "$0.50"), (0.0042, "$0.0042")]
)
def test_dollars(amount: float, text: str) -> None:
    assert dollars(amount) == text


def workers(begins: int, most: int, content: object = None) -> tuple[Section, ...]:
    return (Section("worker", parse(content or given()).worker, begins, most),)


def test_a_quote_names_roles() -> None:
    spec = parse(given()).worker
    kinds = (Section("learner", of_type(spec, "p3.2xlarge", "learner"), 1, 1), Section("actor", spec, 2, 4))
    each = {"rdzv": 0.1, "learner": 3.0, "actor": 0.5}
    assert quote(parse(given()), "eu-west-1", kinds, each) == [
        "1 x c5.large in eu-west-1 (etcd): $0.10 an hour each",
        "1 x p3.2xlarge in eu-west-1 (learner): $3.00 an hour each",
        "2 x c5.large in eu-west-1 (actor): $0.50 an hour each",
        "in all: $4.10 an hour, without volumes, traffic and EFS; up to 5 workers",
    ]


def test_a_quote_names_instances_and_their_sum() -> None:
    lines = quote(parse(given()), "eu-west-1", workers(4, 4), {"rdzv": 0.085, "worker": 3.0})
    assert lines == [
        "1 x c5.large in eu-west-1 (etcd): $0.085 an hour each",
        "4 x c5.large in eu-west-1 (workers): $3.00 an hour each",
        "in all: $12.09 an hour, without volumes, traffic and EFS",
    ]


@pytest.mark.parametrize("unknown", ["rdzv", "worker"])
def test_one_unknown_price_makes_the_sum_unknown(unknown: str) -> None:
    known: dict[str, float | None] = {"rdzv": 1.0, "worker": 1.0, unknown: None}
    lines = quote(parse(given()), "eu-west-1", workers(1, 8), known)
    assert sum("price unknown" in line for line in lines) == 1
    assert lines[-1] == "in all: unknown, without volumes, traffic and EFS; up to 8 workers"


def test_the_cap_of_spot_instances_is_the_most_they_cost() -> None:
    spot = given(max_spot_price="0.5")
    lines = quote(parse(spot), "eu-west-1", workers(2, 2, spot), {"rdzv": 0.1, "worker": 0.5})
    assert lines[1] == "2 x c5.large spot in eu-west-1 (workers): at most $0.50 an hour each"
    assert lines[2].startswith("in all: at most $1.10 an hour")


def instance(name: str, section: str, since: float, state: str = "running") -> dict[str, Any]:
    tags = [{"Key": "lattice:section", "Value": section}]
    launched = datetime.fromtimestamp(since, UTC)
    return {"InstanceId": name, "LaunchTime": launched, "State": {"Name": state}, "Tags": tags}


def cost(views: Sequence[NodeView], found: Sequence[dict[str, Any]], now: float) -> list[float]:
    lived = spans(found, views, BEGAN)
    made = with_costs(views, lived, {"rdzv": 0.1, "worker": 3.0}, now)
    return [round(view.cost or 0.0, 6) for view in made]


def test_instances_cost_from_their_launch_on_until_now() -> None:
    views = [NodeView(0, "i-1", RUNNING, since=BEGAN + 300), NodeView(1, "i-2", RUNNING, since=BEGAN + 300)]
    found = [
        instance("i-e", "rdzv", BEGAN),
        instance("i-1", "worker", BEGAN),
        instance("i-2", "worker", BEGAN + HOUR, "pending"),
    ]
    assert cost(views, found, BEGAN + 2 * HOUR) == [0.2 + 6.0, 3.0]
    assert cost(views, found, BEGAN + 1) == [round(0.1 / 60 + 3.0 / 60, 6), 0.05], "a minute at least"


def test_instances_that_have_ended_cost_no_more() -> None:
    views = [NodeView(0, "i-1", ENDED, since=BEGAN, until=BEGAN + HOUR)]
    gone = [instance("i-e", "rdzv", BEGAN, "terminated"), instance("i-1", "worker", BEGAN, "terminated")]
    soon, later = cost(views, gone, BEGAN + 2 * HOUR), cost(views, [], BEGAN + 100 * HOUR)
    assert soon == later == [3.1], "EC2 forgets instances, their journals stay"


def test_an_instance_that_was_replaced_has_cost_what_it_ran() -> None:
    views = [NodeView(0, "i-2", RUNNING, since=BEGAN + HOUR)]
    ended = datetime.fromtimestamp(BEGAN + HOUR, UTC)
    replaced = {
        **instance("i-1", "worker", BEGAN, "terminated"),
        "StateTransitionReason": f"User initiated ({ended:%Y-%m-%d %H:%M:%S} GMT)",
    }
    found = [replaced, instance("i-2", "worker", BEGAN + HOUR)]
    assert spans(found, views, BEGAN) == [
        Span("i-1", "worker", BEGAN, BEGAN + HOUR),
        Span("i-2", "worker", BEGAN + HOUR, None),
    ]
    assert cost(views, found, BEGAN + 2 * HOUR) == [6.0]


def test_nothing_is_said_where_a_price_is_unknown() -> None:
    views = [NodeView(0, "i-1", RUNNING, since=BEGAN)]
    assert with_costs(views, [], {"rdzv": 0.1, "worker": None}, BEGAN) == views
    assert judge(views, killed=False).cost is None
    assert judge([NodeView(0, cost=1.0), NodeView(1, cost=2.5)], killed=False).cost == 3.5


def test_a_job_is_asked_about_on_a_terminal_and_only_there(cloud: Cloud) -> None:
    words = ["--name", "try", "--on", "aws", "--specs_file", "specs.json", "train.py"]
    command = [sys.executable, "-m", "lattice", "submit", *words]
    (cloud.folder / "specs.json").write_text(json.dumps(cloud.specs))
    (cloud.folder / "train.py").write_text("")
    with price_list({"m5.large": 0.096}) as served:
        environ = {**cloud.environ(), "AWS_ENDPOINT_URL_PRICING": served.url}
        answers = {said: answered(command, environ, str(cloud.folder), said) for said in ("n\n", "\n")}
        assert {code for code, _ in answers.values()} == {1}
        assert "in all: $0.19 an hour" in answers["n\n"][1] or "in all: $0.192 an hour" in answers["n\n"][1]
        assert "submit it? [y/N]" in answers["n\n"][1] and "nothing was submitted" in answers["\n"][1]
        assert not cloud.resources()["groups"]
        code, said = answered(command, environ, str(cloud.folder), "y\n")
        assert code == 0 and "try is submitted" in said
        code, said = answered([*command[:4], "--yes", *words], environ, str(cloud.folder), "")
        assert code == 0 and "submit it?" not in said


def answered(command: Sequence[str], environ: dict[str, str], folder: str, answer: str) -> tuple[int, str]:
    """Run a command on a terminal on which somebody types."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, answer.encode())
        process = subprocess.Popen(command, env=environ, cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        said = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            said += piece
        return process.wait(patience(60)), said.decode()
    finally:
        os.close(ours)


def test_prices_are_unknown_where_nobody_tells_them(cloud: Cloud) -> None:
    assert prices.REGION == "us-east-1"
    said = cloud.submit("try")
    assert said.code == 0, said.err
    assert said.err.count("price unknown") == 2 and "in all: unknown" in said.err
    assert {node["cost"] for node in cloud.status("try")["nodes"]} == {None}
