"""The books of one node add up, whatever happens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lattice.core import ledger
from lattice.core.ledger import Ledger
from lattice.core.pulse import Steps, Up


def running(at: float = 2.0) -> Ledger:
    books = ledger.begin(ledger.order(ledger.open_ledger(0.0), 1.0, ""), 1.1)
    books, bill = ledger.recover(books, Up(1.2, at, "group"))
    assert dict(bill.stages) == pytest.approx({"rendezvous": 1.0, "fork": 0.2, "group": at - 1.2})
    return books


def again(books: Ledger, sign: float, kind: str = "worker", steps: Steps | None = None) -> tuple[Ledger, ledger.Bill]:
    """One whole recovery: 3 ms, 41 ms, 22 ms, 12 ms, 136 ms."""
    books = ledger.disturb(books, sign, sign + 0.003, steps or Steps())
    books = ledger.stop(books, sign + 0.044)
    books = ledger.begin(ledger.order(books, sign + 0.066, kind), sign + 0.07)
    return ledger.recover(books, Up(sign + 0.078, sign + 0.214, "group"))


def test_a_bill_has_every_stage_and_adds_up() -> None:
    _, bill = again(running(), 10.0)
    stages = {"detect": 0.003, "stop": 0.041, "rendezvous": 0.022, "fork": 0.012, "group": 0.136}
    assert dict(bill.stages) == pytest.approx(stages)
    assert bill.total == pytest.approx(0.214) and bill.kind == "worker"


def test_the_sum_at_the_end_by_cause() -> None:
    books, _ = again(running(), 10.0)
    books, _ = again(books, 20.0)
    books, _ = again(books, 30.0, "node")
    totals = ledger.close(books, 40.0, Steps())
    assert totals.seconds == 40 and totals.starting == 2
    assert {kind: (loss.times, round(loss.seconds, 3)) for kind, loss in totals.losses.items()} == {
        "worker": (2, 0.428),
        "node": (1, 0.214),
    }
    assert totals.goodput == pytest.approx((40 - 2 - 3 * 0.214) / 40)


def test_what_follows_from_the_first_sign_is_the_same_loss() -> None:
    books = ledger.disturb(running(), 10.0, 10.0, Steps())
    assert ledger.disturb(books, 10.5, 10.5, Steps()) == books
    assert ledger.stop(ledger.stop(books, 10.6), 10.9).stopped == 10.6


def test_workers_that_fall_again_before_they_are_up() -> None:
    books = ledger.disturb(running(), 10.0, 10.0, Steps())
    books = ledger.begin(ledger.order(ledger.stop(books, 10.1), 10.2, "worker"), 10.3)
    books, bill = again(books, 11.0, "node")
    assert bill.total == pytest.approx(0.214)
    totals = ledger.close(books, 20.0, Steps())
    assert totals.losses["worker"].seconds == pytest.approx(1.0)
    assert totals.losses["node"].seconds == pytest.approx(0.214)


def test_steps_that_are_trained_again_are_lost_to_what_ended_the_round() -> None:
    books, _ = again(running(), 10.0, "hang", Steps(0, 99, 0.05))
    totals = ledger.close(books, 20.0, Steps(80, 199, 0.05))
    loss = totals.losses["hang"]
    assert loss.repeated == 20 and loss.seconds == pytest.approx(0.214 + 20 * 0.05)
    assert totals.trained == pytest.approx(20 - 2 - 0.214 - 1.0)


def test_a_step_is_repeated_only_as_far_as_it_was_trained_again() -> None:
    books, _ = again(running(), 10.0, "worker", Steps(0, 99, 0.05))
    books, _ = again(books, 11.0, "worker", Steps(80, 89, 0.05))
    totals = ledger.close(books, 20.0, Steps(80, 120, 0.05))
    assert totals.losses["worker"].repeated == 10 + 20


def test_a_failure_that_nothing_follows() -> None:
    books = ledger.disturb(running(), 10.0, 10.0, Steps())
    totals = ledger.close(books, 11.0, Steps())
    assert totals.losses["ended"].seconds == pytest.approx(1.0)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["disturb", "stop", "order", "begin", "recover"]),
            st.floats(0, 2),
            st.floats(0, 5),
            st.integers(-1, 50),
        ),
        max_size=30,
    )
)
def test_no_second_is_lost_or_counted_twice(happenings: list[tuple[str, float, float, int]]) -> None:
    books, now = ledger.open_ledger(0.0), 0.0
    for what, passed, back, step in happenings:
        now += passed
        match what:
            case "disturb":
                books = ledger.disturb(books, now - back, now, Steps(step, step + 3 if step >= 0 else -1, 0.5))
            case "stop":
                books = ledger.stop(books, now)
            case "order":
                books = ledger.order(books, now, "worker")
            case "begin":
                books = ledger.begin(books, now)
            case "recover" if books.started is not None:
                books, bill = ledger.recover(books, Up(None, now, ""))
                assert all(seconds >= 0 for _, seconds in bill.stages)
    totals = ledger.close(books, now, Steps())
    lost = sum(loss.seconds for loss in totals.losses.values())
    assert totals.trained + totals.starting + lost == pytest.approx(now)
    assert min(totals.trained, totals.starting, lost) >= -1e-9
