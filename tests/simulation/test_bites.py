"""The simulation finds what it is for: each of these changes to the protocol breaks a promise in a few schedules."""

from __future__ import annotations

import pytest

from lattice.core import electing, leader, member, publishing
from tests.simulation.mutation import Mutation
from tests.simulation.replay import replay
from tests.simulation.store import SimulatedStore
from tests.tiers import quick_and_long

WITHIN = 1000

MUTATIONS = (
    Mutation(
        "a round is sealed while members of the last one still run",
        leader,
        "_conclude",
        "return None  # it is still stopping, or leaving",
        "continue",
    ),
    Mutation("absence means loss at once", leader, "_missing", "if state.settled:", "if True:"),
    Mutation("a loss uses the budget", leader, "_conclude", "verdict = judge(lost,", "verdict = judge(set(),"),
    Mutation("the run is over when one node is done", leader, "_watch_over", "if all(", "if any("),
    Mutation(
        "a node that did not get to start says nothing",
        member,
        "node_record",
        "number = max(current.number if current else 0, state.passed)",
        "number = current.number if current else 0",
    ),
    Mutation("the records of the run lapse", electing, "keep_run", "if state.leads and run", "if False and run"),
    Mutation("spares restart others", leader, "_grow", " or len(roster) >= policy.nodes.maximum", ""),
    Mutation("nothing claims the round of an emptied store", member, "node_record", "state.claiming and", "False and"),
    Mutation("places go by revisions of an emptied store", leader, "_refill", "arrivals=(),", ""),
    Mutation("a node takes the place of who came after it", member, "_arrived", "- revision", "- revision + 1"),
    Mutation("decisions on a view without one's own writes", leader, "lead", "if not state.caught_up:", "if False:"),
)
RARE = (
    Mutation("whoever once led writes on", publishing, "_guards", "return (CreatedAt(", "return () and (CreatedAt("),
)
"""noticed in one of several hundred schedules"""


@pytest.mark.parametrize("mutation", quick_and_long(MUTATIONS, RARE), ids=lambda mutation: mutation.why)
def test_a_broken_protocol_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutation.apply(monkeypatch)
    assert any(replay(seed, last=1) for seed in range(WITHIN)), f"nothing noticed that {mutation.why}"


def test_a_store_that_has_one_name_for_ever_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    # Then only a lower revision tells that it was emptied, and other runs may have written more than was lost.
    name = property(lambda store: 1, lambda store, name: None)
    monkeypatch.setattr(SimulatedStore, "identity", name, raising=False)
    assert any(replay(seed, last=1) for seed in range(WITHIN)), "nothing noticed that agents take a wipe for an end"
