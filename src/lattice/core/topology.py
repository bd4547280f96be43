"""Who takes part in a round and under which ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from itertools import pairwise

from lattice.core.dataclass import dataclass

PART_SIZE = 16
"""members in one roster part at most: a member reads one, and the more there are the longer the round record is"""
MAX_ROWS = 128
"""rows of arrivals in a round at most: they go to every node, and must not be longer than the part it would read"""


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One node's place in a round."""

    incarnation: str
    group_rank: int
    rank_offset: int
    workers: int
    host: str
    address: str
    ports: tuple[int, ...]
    """ports reserved on that node for this round; the first one is for the master if the node has group rank 0"""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one node needs to start its workers of a round."""

    run_id: str
    round: int
    restarts: int
    max_restarts: int
    role: str
    entry: RosterEntry
    nodes: int
    world: int
    master_address: str
    master_port: int
    members: tuple[RosterEntry, ...] = ()
    """all entries in order of group rank, only for environments that need them (else empty)"""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that could take part in the next round."""

    incarnation: str
    host: str
    address: str
    ports: tuple[int, ...]
    workers: int
    joined: int
    """create revision of its node key: the order of joining"""
    wish: int | None = None
    """the group rank it asks for"""
    previous: int | None = None
    """the group rank it had in the last round, if it was in it"""


def choose(candidates: Iterable[Candidate], maximum: int) -> tuple[Candidate, ...]:
    """
    Pick who takes part: those of the last round first, then in order of joining.

    :param candidates: the nodes that are ready
    :param maximum: how many a round may have
    :return: at most that many; the rest are spares
    """

    def order(candidate: Candidate) -> tuple[bool, int, str]:
        stays = candidate.previous is not None
        return not stays, candidate.previous if stays else candidate.joined, candidate.incarnation  # type: ignore[return-value]

    return tuple(sorted(candidates, key=order)[:maximum])


def assign(members: tuple[Candidate, ...]) -> tuple[RosterEntry, ...]:
    """
    Give group ranks 0 to n-1, moving as few nodes as possible.

    Whoever stays keeps its rank if that still exists, newcomers get the rank they ask for if it is free, the rest
    fills the gaps, those who stay before those who come.

    :param members: the nodes of the round, as from :func:`choose`
    :return: entries in order of group rank
    """
    size = len(members)
    staying = [node for node in members if node.previous is not None]
    coming = [node for node in members if node.previous is None]
    places: dict[int, Candidate] = {}
    for node, rank in [(node, node.previous) for node in staying] + [(node, node.wish) for node in coming]:
        if rank is not None and rank < size:
            places.setdefault(rank, node)
    placed = {node.incarnation for node in places.values()}
    gaps = [rank for rank in range(size) if rank not in places]
    places.update(zip(gaps, [node for node in staying + coming if node.incarnation not in placed], strict=True))
    entries, offset = [], 0
    for rank in range(size):
        node = places[rank]
        entries.append(
            RosterEntry(node.incarnation, rank, offset, node.workers, node.host, node.address, node.ports),
        )
        offset += node.workers
    return tuple(entries)


def moved(before: Iterable[RosterEntry], after: Iterable[RosterEntry]) -> tuple[int, ...]:
    """
    List the group ranks of one round whose nodes have another place in the next, or none.

    Their ports may differ: each node knows its own, and whoever needs those of others reads the roster.

    :param before: members of the one
    :param after: members of the next
    """

    def place(entry: RosterEntry) -> tuple[int, int, int, str, str]:
        return entry.group_rank, entry.rank_offset, entry.workers, entry.host, entry.address

    places = {entry.incarnation: place(entry) for entry in after}
    return tuple(sorted(entry.group_rank for entry in before if places.get(entry.incarnation) != place(entry)))


def arrivals(
    entries: Iterable[RosterEntry], came: Mapping[str, int], staying: Set[str]
) -> tuple[tuple[int, int, int], ...]:
    """
    Tell the places of nodes by the revisions at which they came.

    A revision is that of one transaction, and a node's record is written by nobody else: whoever finds the revision of
    its own here is meant. Nodes that come together have neighbouring revisions and ranks, so few rows do for many.

    :param entries: members in order of group rank
    :param came: the create revisions of their records
    :param staying: members that are not to be listed
    :return: rows of first revision, first group rank and how many follow on each other; none if that would be too many,
        or if some nodes have more workers than others: then the rank of a node does not tell those of its workers
    """
    entries = tuple(entries)
    if len({entry.workers for entry in entries}) != 1:
        return ()
    rows: list[tuple[int, int, int]] = []
    for entry in entries:
        if entry.incarnation in staying:
            continue
        revision, rank, count = rows[-1] if rows else (0, 0, 0)
        if count and (came[entry.incarnation], entry.group_rank) == (revision + count, rank + count):
            rows[-1] = revision, rank, count + 1
        else:
            rows.append((came[entry.incarnation], entry.group_rank, 1))
    return tuple(rows) if len(rows) <= MAX_ROWS else ()


def parts(entries: Iterable[RosterEntry]) -> tuple[tuple[RosterEntry, ...], ...]:
    """Cut a roster into parts in order of incarnation, so that an agent finds its own by the first of each."""
    ordered = sorted(entries, key=lambda entry: entry.incarnation)
    return tuple(tuple(ordered[at : at + PART_SIZE]) for at in range(0, len(ordered), PART_SIZE))


def borders(cut: tuple[tuple[RosterEntry, ...], ...]) -> tuple[str, ...]:
    """
    Tell where each part begins, in as few characters as will do: every agent gets this.

    :param cut: parts, as from :func:`parts`
    :return: for each part a text that is greater than all incarnations before it and not greater than its own
    """
    found = [""]
    for before, part in pairwise(cut):
        last, first = before[-1].incarnation, part[0].incarnation
        found.append(next(first[:size] for size in range(1, len(first) + 1) if first[:size] > last))
    return tuple(found)
