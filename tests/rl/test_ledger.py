from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from lattice.rl.ledger import Ledger

IDS = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(1, 30))


@given(st.lists(IDS, max_size=200))
def test_it_does_what_a_set_of_all_ids_does(ids: list[tuple[str, int]]) -> None:
    ledger, dumb = Ledger(), set[tuple[str, int]]()
    for worker, number in ids:
        assert ledger.accept(worker, number) == ((worker, number) not in dumb)
        dumb.add((worker, number))
        ledger = Ledger.of(json.loads(json.dumps(ledger.state())))  # as a checkpoint does
    assert all(one in ledger for one in dumb)
    for worker in "abc":
        mark = ledger.mark(worker)
        assert {number for name, number in dumb if name == worker} >= set(range(1, mark + 1))
        assert (worker, mark + 1) not in dumb


def test_what_comes_in_order_is_one_number() -> None:
    ledger = Ledger()
    for number in range(1, 1001):
        ledger.accept("a", number)
    assert ledger.state() == {"marks": {"a": 1000}, "ahead": {}}
