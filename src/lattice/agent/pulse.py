"""Watches the board while workers run: when they are up, who hangs, who is ready after a notice."""

from __future__ import annotations

from collections.abc import Callable, Set

from lattice.agent.board import Board
from lattice.core.pulse import Habits, Lines, Up, hung, learn, signs, up

SHORTEST, LONGEST = 0.002, 1.0
"""seconds between two looks at workers that are not up yet; a twentieth of the time that they have taken so far"""
NOTICE_LOOKS = 0.02
"""seconds between two looks at workers that were given notice"""
LATE = 1.0
"""a look that comes this much later than it should means that this process was held up, and maybe the workers too"""


class Pulse:
    """One node's workers, as far as they tell."""

    def __init__(self, board: Board, hang_timeout: float, groups: bool, on_up: Callable[[Up], None]) -> None:
        """
        Begin without workers.

        :param board: where they write
        :param hang_timeout: seconds without progress after which a worker hangs; 0 for never
        :param groups: whether process groups are of a kind that the zygote notes
        :param on_up: told once in each round, when its workers are up
        """
        self._board = board
        self._hang_timeout = hang_timeout
        self._groups = groups
        self._on_up = on_up
        self._habits = Habits()
        self._ranks: tuple[int, ...] = ()
        self._warm: frozenset[int] = frozenset()
        self._started = 0.0
        self._floor = 0.0
        self._next_look: float | None = None
        self._next_check: float | None = None

    @property
    def lines(self) -> Lines:
        """Read what the workers of this round have told."""
        return {rank: self._board.line(rank) for rank in self._ranks}

    def clear(self) -> None:
        """Forget a round that is over, but not what it taught."""
        if self._ranks:
            self._habits = learn(self._habits, self.lines, self._started)
        self._board.clear()
        self._ranks, self._next_look, self._next_check = (), None, None

    def begin(self, ranks: tuple[int, ...], warm: frozenset[int], at: float) -> None:
        """
        Watch the workers of a round.

        :param ranks: local ranks
        :param warm: those that were forked from a zygote
        :param at: when they were started
        """
        self._ranks, self._warm, self._started, self._floor = ranks, warm, at, at
        self._next_look = at
        self._next_check = at + self._hang_timeout if self._hang_timeout else None

    @property
    def deadline(self) -> float | None:
        """Tell when :meth:`look` is needed."""
        return min((moment for moment in (self._next_look, self._next_check) if moment is not None), default=None)

    def look(self, living: Set[int], now: float) -> int | None:
        """
        Look at the board.

        :param living: local ranks that have not ended
        :param now: the moment
        :return: a worker that hangs
        """
        if self._next_look is not None and now >= self._next_look:
            self._look_up(living, now)
        if self._next_check is not None and now >= self._next_check:
            return self._check(living, now)
        return None

    def _look_up(self, living: Set[int], now: float) -> None:
        found = up(self.lines, living, self._habits, self._started, self._warm, self._groups, now)
        if found is None:
            self._next_look = now + min(max((now - self._started) / 20, SHORTEST), LONGEST)
        else:
            self._next_look = None
            self._on_up(found)

    def _check(self, living: Set[int], now: float) -> int | None:
        assert self._next_check is not None
        if now > self._next_check + LATE:
            # Suspended, or frozen together with the workers: they get the whole time anew.
            self._floor = now
        lines = self.lines
        due = {rank: at for at, rank in signs(lines, living, self._habits, self._floor, self._hang_timeout)}
        overdue = {rank for rank, at in due.items() if at <= now}
        if overdue:
            self._next_check = None
            return hung(lines, overdue)
        # Who has never told of anything yet may begin to: nobody else would notice.
        self._next_check = min(due.values(), default=now + self._hang_timeout)
        return None
