"""Who gets which rank: checked against a version that simply tries everything."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from lattice.core.records import RoundRecord
from lattice.core.topology import (
    MAX_ROWS,
    PART_SIZE,
    Candidate,
    RosterEntry,
    arrivals,
    assign,
    borders,
    choose,
    moved,
    parts,
)


@st.composite
def candidates(draw: st.DrawFn, most: int = 6) -> tuple[Candidate, ...]:
    count = draw(st.integers(1, most))
    before = draw(st.permutations(range(count + 3)))
    return tuple(
        Candidate(
            incarnation=f"n{index}",
            host=f"h{index}",
            address=f"10.0.0.{index}",
            ports=(1000 + index,),
            workers=draw(st.integers(1, 4)),
            joined=draw(st.integers(1, 50)),
            wish=draw(st.none() | st.integers(0, count + 1)),
            previous=before[index] if draw(st.booleans()) else None,
        )
        for index in range(count)
    )


def moves(members: tuple[Candidate, ...], order: tuple[str, ...]) -> int:
    """Count those who stay and get another rank."""
    before = {node.incarnation: node.previous for node in members if node.previous is not None}
    return sum(1 for rank, name in enumerate(order) if name in before and before[name] != rank)


@given(candidates())
def test_ranks_are_a_permutation_without_gaps(members: tuple[Candidate, ...]) -> None:
    entries = assign(members)
    assert sorted(entry.incarnation for entry in entries) == sorted(node.incarnation for node in members)
    assert [entry.group_rank for entry in entries] == list(range(len(members)))
    ranks = [rank for entry in entries for rank in range(entry.rank_offset, entry.rank_offset + entry.workers)]
    assert ranks == list(range(sum(node.workers for node in members)))


@given(candidates())
def test_who_stays_keeps_its_rank_while_that_exists(members: tuple[Candidate, ...]) -> None:
    rank = {entry.incarnation: entry.group_rank for entry in assign(members)}
    for node in members:
        if node.previous is not None and node.previous < len(members):
            assert rank[node.incarnation] == node.previous


@given(candidates(most=5))
def test_no_other_order_moves_fewer(members: tuple[Candidate, ...]) -> None:
    chosen = tuple(entry.incarnation for entry in assign(members))
    fewest = min(moves(members, order) for order in permutations(node.incarnation for node in members))
    assert moves(members, chosen) == fewest


@given(candidates())
def test_a_free_rank_goes_to_who_asks_for_it(members: tuple[Candidate, ...]) -> None:
    rank = {entry.incarnation: entry.group_rank for entry in assign(members)}
    taken = {node.previous for node in members}
    for node in members:
        alone = sum(1 for other in members if other.previous is None and other.wish == node.wish) == 1
        if node.previous is None and node.wish is not None and alone and node.wish not in taken:
            assert rank[node.incarnation] == node.wish or node.wish >= len(members)


@given(candidates(), st.integers(1, 6))
def test_those_of_the_last_round_are_chosen_first_then_the_first_to_come(
    members: tuple[Candidate, ...], maximum: int
) -> None:
    chosen = choose(members, maximum)
    spares = [node for node in members if node not in chosen]
    assert len(chosen) == min(len(members), maximum)
    for spare in spares:
        for node in chosen:
            if spare.previous is not None:
                assert node.previous is not None
            elif node.previous is None:
                assert node.joined <= spare.joined


@given(st.sets(st.text("0123456789abcdef", min_size=1, max_size=6), max_size=3 * PART_SIZE))
def test_everybody_finds_its_part_by_the_first_of_each(names: set[str]) -> None:
    from lattice.core.records import RoundRecord

    cut = parts(RosterEntry(name, 0, 0, 1, "", "", ()) for name in names)
    firsts = tuple(part[0].incarnation for part in cut)
    record = RoundRecord(1, RoundRecord.SEALED, 0, "", "", 0, len(names), len(names), firsts)
    assert all(len(part) <= PART_SIZE for part in cut)
    for name in names:
        assert name in {entry.incarnation for entry in cut[record.part_of(name)]}


names = st.lists(st.text("0123456789abcdef", min_size=1, max_size=6), min_size=1, max_size=80, unique=True)


@given(names)
def test_borders_lead_every_member_to_its_part_in_few_characters(incarnations: list[str]) -> None:
    cut = parts(RosterEntry(name, 0, 0, 1, "", "", ()) for name in incarnations)
    record = RoundRecord(1, RoundRecord.SEALED, 0, "", "", 0, len(incarnations), 0, borders(cut))
    for index, part in enumerate(cut):
        assert all(record.part_of(entry.incarnation) == index for entry in part)
        assert len(record.parts[index]) <= len(part[0].incarnation)


def test_borders_of_random_incarnations_are_short() -> None:
    random = Random(7)
    cut = parts(RosterEntry(f"{random.getrandbits(64):016x}", 0, 0, 1, "", "", ()) for _ in range(1000))
    assert len(cut) == -(-1000 // PART_SIZE)
    assert sum(map(len, borders(cut))) < 4 * len(cut)


@given(candidates(), st.data())
def test_whoever_is_not_moved_has_the_same_place(members: tuple[Candidate, ...], data: st.DataObject) -> None:
    before = assign(members)
    ranks = {entry.incarnation: entry.group_rank for entry in before}
    staying = data.draw(st.lists(st.sampled_from(members), unique=True, min_size=1))
    after = {
        entry.incarnation: entry
        for entry in assign(tuple(replace(node, previous=ranks[node.incarnation], ports=(9,)) for node in staying))
    }
    listed = moved(before, after.values())
    for entry in before:
        mine = after.get(entry.incarnation)
        holds = mine is not None and replace(mine, ports=entry.ports) == entry
        assert holds == (entry.group_rank not in listed)


@given(candidates(), st.sets(st.integers(0, 5)))
def test_a_revision_leads_to_the_place_of_who_came_then(members: tuple[Candidate, ...], stay: set[int]) -> None:
    nodes = [replace(node, workers=2, joined=10 + index) for index, node in enumerate(members)]
    entries = assign(choose(nodes, 100))
    came = {node.incarnation: node.joined for node in nodes}
    staying = {entry.incarnation for entry in entries if entry.group_rank in stay}
    rows = arrivals(entries, came, staying)
    told = {revision + step: rank + step for revision, rank, count in rows for step in range(count)}
    assert told == {came[entry.incarnation]: entry.group_rank for entry in entries if entry.incarnation not in staying}
    uneven = (*entries, replace(entries[-1], workers=3))
    assert arrivals(uneven, came, staying) == ()


def test_a_thousand_that_come_together_are_one_row() -> None:
    nodes = tuple(Candidate(f"{7 * n % 1000:03}", "h", "a", (1,), 8, joined=50 + n) for n in range(1000))
    entries = assign(choose(nodes, 1000))
    assert arrivals(entries, {node.incarnation: node.joined for node in nodes}, set()) == ((50, 0, 1000),)
    scattered = {node.incarnation: 2 * node.joined for node in nodes}
    assert arrivals(entries, scattered, set()) == ()
    assert len(arrivals(entries[:MAX_ROWS], scattered, set())) == MAX_ROWS
