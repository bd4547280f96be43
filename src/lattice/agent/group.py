"""This node's workers of one round: started, watched, stopped; how they end goes to the core."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from selectors import EVENT_READ, BaseSelector

from lattice.agent import messages
from lattice.agent.accounts import Accounts
from lattice.agent.board import Board
from lattice.agent.failure import describe_failure, describe_hang, fresh_error_file
from lattice.agent.keeper import Keeper
from lattice.agent.output import Output
from lattice.agent.pulse import NOTICE_LOOKS, Pulse
from lattice.agent.starting import Starter
from lattice.core.board import NOTICE_VARIABLE
from lattice.core.events import Event, WorkersDone, WorkersFailed, WorkersStopped
from lattice.core.pulse import Steps, slowest, steps
from lattice.core.records import FailureRecord
from lattice.core.spec import AgentSpec
from lattice.core.supervision import (
    DumpStacks,
    Exited,
    Group,
    Happening,
    Hung,
    HurryAsked,
    Kill,
    Notify,
    Passed,
    Readied,
    ReportDone,
    ReportFailure,
    ReportStopped,
    StopAsked,
    Terminate,
    supervise,
)
from lattice.core.topology import Assignment
from lattice.environments import Environment
from lattice.environments.identity import identity
from lattice.errors import WorkerNotStarted
from lattice.process.ports import ReservedPorts
from lattice.process.shortage import Shortage
from lattice.process.workers import Exit, Worker
from lattice.telemetry.journal import Journal


class Companion:
    """What somebody who runs an agent may add to each of its workers; by itself nothing."""

    @property
    def waits(self) -> bool:
        """Tell whether workers should not be started yet: :meth:`WorkerGroup.go_on` is called when that may change."""
        return False

    def variables(self, assignment: Assignment, local_rank: int) -> Mapping[str, str]:
        """Give further variables for a worker that is about to start."""
        return {}

    def ended(self, assignment: Assignment, local_rank: int, ended: Exit) -> None:
        """Hear that a worker has ended."""


class WorkerGroup:
    """Performs what :mod:`lattice.core.supervision` decides."""

    def __init__(
        self,
        spec: AgentSpec,
        environment: Environment,
        folder: Path,
        starter: Starter,
        output: Output,
        accounts: Accounts,
        journal: Journal,
        selector: BaseSelector,
        put: Callable[[Event], None],
        say: Callable[[str], None],
        companion: Companion,
    ) -> None:
        self._spec = spec
        self._environment = environment
        self._folder = folder
        self._starter = starter
        starter.changed = self.go_on
        self._output = output
        self._accounts = accounts
        self._journal = journal
        self._selector = selector
        self._put = put
        self._say = say
        self._companion = companion
        self._assignment: Assignment | None = None
        self._group: Group | None = None
        self._workers: dict[int, Worker] = {}
        self._unstarted: dict[int, WorkerNotStarted] = {}
        self._waiting: tuple[Assignment, Mapping[str, str]] | None = None
        self._next_look: float | None = None
        self._notices: dict[int, Path | None] = {}
        self._stop_began = 0.0
        self._stop_reason = ""
        self._board = Board(spec.workers)
        self._pulse = Pulse(self._board, spec.hang_timeout, spec.framework == "pytorch", accounts.up)
        self._ports = ReservedPorts(environment.ports(spec.workers))
        self._shortage = Shortage()
        self.keeper = Keeper(selector, journal, say, spec.checkpoint_timeout)
        """writes what the workers save"""

    @property
    def ports(self) -> tuple[int, ...]:
        """Give the ports that are reserved for the next round, or used by this one."""
        return self._ports.ports

    @property
    def deadline(self) -> float | None:
        """Tell when :meth:`tick` is needed."""
        if self._group is None:
            return None
        moments = [self._group.deadline, self._pulse.deadline, self._next_look]
        return min((moment for moment in moments if moment is not None), default=None)

    @property
    def steps(self) -> Steps:
        """Tell how far the workers of this round have come."""
        return steps(self._pulse.lines)

    @property
    def living(self) -> tuple[int, ...]:
        """Give the pids of the workers that run."""
        return tuple(worker.pid for worker in self._workers.values() if worker.exit is None)

    def start(self, assignment: Assignment, extra: Mapping[str, str]) -> None:
        """
        Start the workers of a round, now or as soon as what they all import has been imported once.

        :param assignment: this node's place in it
        :param extra: further variables for every worker
        """
        self._waiting = (assignment, extra)
        self.go_on()

    def go_on(self) -> None:
        """Start what waits to be started, if it need not wait any longer."""
        if self._waiting is not None and not self._starter.waits and not self._companion.waits:
            (assignment, extra), self._waiting = self._waiting, None
            self._start(assignment, extra)

    def _start(self, assignment: Assignment, extra: Mapping[str, str]) -> None:
        began = time.monotonic()
        self._assignment = assignment
        self._shortage.close()
        self._shortage = Shortage()  # what another round ran out of is no news
        self._workers, self._unstarted = {}, {}
        self._pulse.clear()
        ranks = tuple(range(assignment.entry.workers))
        self._group = Group(frozenset(ranks), self._spec.shutdown_timeout, self._spec.notice_grace)
        for local_rank in range(assignment.entry.workers):
            try:
                self._spawn(assignment, local_rank, extra)
            except WorkerNotStarted as error:
                self._unstarted[local_rank] = error
        self._journal.write(
            "workers started",
            round=assignment.round,
            ranks=[assignment.entry.rank_offset, assignment.entry.rank_offset + assignment.entry.workers - 1],
            pids=[worker.pid for worker in self._workers.values()],
            took=round(time.monotonic() - began, 4),
        )
        now = time.monotonic()
        self._pulse.begin(ranks, frozenset(rank for rank, worker in self._workers.items() if worker.warm), now)
        self._accounts.started(now)
        self._starter.started()
        for local_rank, unstarted in tuple(self._unstarted.items()):
            self._happen(Exited(time.monotonic(), local_rank, unstarted.exit_code))

    def stop(self, reason: str, manner: str = "") -> None:
        """
        Stop the workers; WorkersStopped follows, at once if there are none.

        :param reason: told to workers that asked for notice
        :param manner: as in :mod:`lattice.core.supervision`
        """
        self._stop_began = time.monotonic()
        self._stop_reason = reason
        self._waiting = None
        if self._group is None:
            self._put(WorkersStopped(time.monotonic(), self.ports))
            return
        asked = {rank for rank, line in self._pulse.lines.items() if line.wants or self._spec.notice_signal}
        self._happen(StopAsked(time.monotonic(), manner, frozenset(asked & self._workers.keys())))

    def hurry(self) -> None:
        """Give the workers no more grace."""
        if self._group is not None:
            self._happen(HurryAsked(time.monotonic()))

    def tick(self) -> None:
        """Let time pass."""
        if self._group is None:
            return
        now = time.monotonic()
        hung = None if self._group.stopping else self._pulse.look(self._group.living, now)
        if hung is not None:
            self._happen(Hung(now, hung))
        for local_rank in self._group.awaited:
            if messages.is_ready(self._board, local_rank, self._notices[local_rank]):
                self._happen(Readied(now, local_rank))
        self._happen(Passed(now))
        self._next_look = now + NOTICE_LOOKS if self._group.awaited else None

    def close(self) -> None:
        """Give back what was reserved."""
        self._shortage.close()
        self._ports.close()
        self._board.close()
        self.keeper.close()

    def log_folder(self, assignment: Assignment, local_rank: int) -> Path:
        """Tell where the output of a worker lies."""
        return self._folder / f"round_{assignment.round}" / str(assignment.entry.rank_offset + local_rank)

    def _spawn(self, assignment: Assignment, local_rank: int, extra: Mapping[str, str]) -> None:
        folder = self.log_folder(assignment, local_rank)
        error_file = str(fresh_error_file(folder))
        environ = {
            **self._starter.shared,
            **extra,
            **self._companion.variables(assignment, local_rank),
            **self._board.variables(local_rank),
            **self.keeper.variables(),
            NOTICE_VARIABLE: str(messages.notice_file(folder)),
            **identity(assignment, local_rank),
            **self._environment.variables(assignment, local_rank, error_file),
        }
        streams = self._output.open(
            local_rank,
            folder,
            rank=assignment.entry.rank_offset + local_rank,
            host=assignment.entry.host if assignment.nodes > 1 else "",
        )
        try:
            worker = self._starter.spawn(environ, streams.stdout, streams.stderr)
        finally:
            os.close(streams.stdout)
            os.close(streams.stderr)
        self._workers[local_rank] = worker
        self._selector.register(worker.pidfd, EVENT_READ, lambda: self._exited(local_rank))

    def _exited(self, local_rank: int) -> None:
        now, worker = time.monotonic(), self._workers[local_rank]
        ended = worker.poll()
        if ended is None:
            return
        self._selector.unregister(worker.pidfd)
        assert self._assignment is not None
        rank = self._assignment.entry.rank_offset + local_rank
        self._journal.write("worker exited", rank=rank, pid=worker.pid, code=ended.code, signal=ended.signal)
        self._companion.ended(self._assignment, local_rank, ended)
        self._happen(Exited(now, local_rank, ended.status))

    def _folder_of(self, local_rank: int) -> Path:
        assert self._assignment is not None
        return self.log_folder(self._assignment, local_rank)

    def _happen(self, happening: Happening) -> None:
        assert self._group is not None
        self._group, orders = supervise(self._group, happening)
        for order in orders:
            match order:
                case Notify(local_ranks=ranks, until=until):
                    self._notify(ranks, until)
                case DumpStacks(local_ranks=ranks):
                    self._dump_stacks(ranks)
                case Terminate(local_ranks=ranks):
                    self._stop_began = time.monotonic()
                    self._signal(ranks, signal.SIGTERM)
                    self._starter.check()
                case Kill(local_ranks=ranks):
                    self._signal(ranks, signal.SIGKILL)
                case ReportFailure(local_rank=rank, hung=True):
                    since = self._board.line(rank).beat_at or happening.at - self._spec.hang_timeout
                    self._put(WorkersFailed(time.monotonic(), self._hang(rank), since))
                case ReportFailure(local_rank=rank):
                    self._put(WorkersFailed(time.monotonic(), self._failure(rank), happening.at))
                case ReportDone():
                    self._clean_up()
                    assert self._assignment is not None
                    entry = self._assignment.entry
                    pace = slowest(self._pulse.lines, entry.rank_offset, entry.host)
                    self._put(WorkersDone(time.monotonic(), pace))
                case ReportStopped():
                    self._clean_up()
                    self._group = None
                    self._ports.close()
                    self._ports = ReservedPorts(self._environment.ports(self._spec.workers))
                    self._journal.write("workers stopped", took=round(time.monotonic() - self._stop_began, 4))
                    self._put(WorkersStopped(time.monotonic(), self.ports))

    def _notify(self, ranks: tuple[int, ...], until: float) -> None:
        self._next_look = time.monotonic() + NOTICE_LOOKS
        self._journal.write("notice given", ranks=ranks, reason=self._stop_reason, seconds=self._spec.notice_grace)
        for rank in ranks:
            folder, number = self._folder_of(rank), self._spec.notice_signal
            self._notices[rank] = messages.give_notice(
                self._board, self._workers[rank], rank, folder, self._stop_reason, until, number
            )

    def _dump_stacks(self, ranks: tuple[int, ...]) -> None:
        shown = [rank for rank in ranks if messages.show_stacks(self._board, self._workers[rank], rank)]
        self._journal.write("stacks asked for", ranks=shown)
        for line in self._progress():
            self._say(line)

    def _progress(self) -> list[str]:
        assert self._assignment is not None
        now, first = time.monotonic(), self._assignment.entry.rank_offset
        return [
            messages.progress(first + rank, self._board.line(rank), worker.pid, now)
            for rank, worker in self._workers.items()
        ]

    def _signal(self, ranks: tuple[int, ...], number: int) -> None:
        for rank in ranks:
            if rank in self._workers:
                self._workers[rank].signal(number)

    def _clean_up(self) -> None:
        """Leave nothing of the round: no process of any worker's making, no pipe."""
        self._starter.sweep()
        for local_rank in (*self._workers, *self._unstarted):
            self._output.finish(local_rank)
        for worker in self._workers.values():
            worker.close()
        self._workers, self._unstarted = {}, {}

    def _hang(self, local_rank: int) -> FailureRecord:
        assert self._assignment is not None
        return describe_hang(
            self._assignment,
            local_rank,
            pid=self._workers[local_rank].pid,
            timeout=self._spec.hang_timeout,
            progress=self._progress(),
            folder=self._folder_of(local_rank),
        )

    def _failure(self, local_rank: int) -> FailureRecord:
        assert self._assignment is not None
        worker, unstarted = self._workers.get(local_rank), self._unstarted.get(local_rank)
        return describe_failure(
            self._assignment,
            local_rank,
            pid=worker.pid if worker else 0,
            ended=worker.exit if worker and worker.exit else Exit(code=unstarted.exit_code if unstarted else 1),
            stderr=str(unstarted) if unstarted else self._output.tail(local_rank),
            folder=self._folder_of(local_rank),
            framework=self._spec.framework,
            out_of_memory=worker is not None and self._shortage.struck(worker.pid),
        )
