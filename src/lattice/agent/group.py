"""This node's workers of one round: started, watched, stopped; how they end goes to the core."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from selectors import EVENT_READ, BaseSelector

from lattice.agent.failure import describe_failure, fresh_error_file
from lattice.agent.output import Output
from lattice.agent.starting import Starter
from lattice.core.events import Event, WorkersDone, WorkersFailed, WorkersStopped
from lattice.core.records import FailureRecord
from lattice.core.spec import AgentSpec
from lattice.core.supervision import (
    Exited,
    Group,
    Happening,
    HurryAsked,
    Kill,
    Passed,
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
from lattice.process.workers import Exit, Worker
from lattice.telemetry.journal import Journal


class WorkerGroup:
    """Performs what :mod:`lattice.core.supervision` decides."""

    def __init__(
        self,
        spec: AgentSpec,
        environment: Environment,
        folder: Path,
        starter: Starter,
        output: Output,
        journal: Journal,
        selector: BaseSelector,
        put: Callable[[Event], None],
    ) -> None:
        self._spec = spec
        self._environment = environment
        self._folder = folder
        self._starter = starter
        starter.changed = self._go_on
        self._output = output
        self._journal = journal
        self._selector = selector
        self._put = put
        self._assignment: Assignment | None = None
        self._group: Group | None = None
        self._workers: dict[int, Worker] = {}
        self._unstarted: dict[int, WorkerNotStarted] = {}
        self._waiting: tuple[Assignment, Mapping[str, str]] | None = None
        self._stop_began = 0.0
        self._ports = ReservedPorts(environment.ports(spec.workers))

    @property
    def ports(self) -> tuple[int, ...]:
        """Give the ports that are reserved for the next round, or used by this one."""
        return self._ports.ports

    @property
    def deadline(self) -> float | None:
        """Tell when :meth:`tick` is needed."""
        return self._group.kill_at if self._group else None

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
        self._go_on()

    def _go_on(self) -> None:
        if self._waiting is not None and not self._starter.waits:
            (assignment, extra), self._waiting = self._waiting, None
            self._start(assignment, extra)

    def _start(self, assignment: Assignment, extra: Mapping[str, str]) -> None:
        began = time.monotonic()
        self._assignment = assignment
        self._workers, self._unstarted = {}, {}
        self._group = Group(frozenset(range(assignment.entry.workers)), self._spec.shutdown_timeout)
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
        self._starter.started()
        for local_rank, unstarted in tuple(self._unstarted.items()):
            self._happen(Exited(time.monotonic(), local_rank, unstarted.exit_code))

    def stop(self) -> None:
        """Stop the workers; WorkersStopped follows, at once if there are none."""
        self._stop_began = time.monotonic()
        self._waiting = None
        if self._group is None:
            self._put(WorkersStopped(time.monotonic(), self.ports))
        else:
            self._happen(StopAsked(time.monotonic()))

    def hurry(self) -> None:
        """Give the workers no more grace."""
        if self._group is not None:
            self._happen(HurryAsked(time.monotonic()))

    def tick(self) -> None:
        """Let time pass."""
        if self._group is not None:
            self._happen(Passed(time.monotonic()))

    def close(self) -> None:
        """Give the reserved ports back."""
        self._ports.close()

    def log_folder(self, assignment: Assignment, local_rank: int) -> Path:
        """Tell where the output of a worker lies."""
        return self._folder / f"round_{assignment.round}" / str(assignment.entry.rank_offset + local_rank)

    def _spawn(self, assignment: Assignment, local_rank: int, extra: Mapping[str, str]) -> None:
        folder = self.log_folder(assignment, local_rank)
        error_file = str(fresh_error_file(folder))
        environ = {
            **self._starter.shared,
            **extra,
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
        worker = self._workers[local_rank]
        ended = worker.poll()
        if ended is None:
            return
        self._selector.unregister(worker.pidfd)
        assert self._assignment is not None
        rank = self._assignment.entry.rank_offset + local_rank
        self._journal.write("worker exited", rank=rank, pid=worker.pid, code=ended.code, signal=ended.signal)
        self._happen(Exited(time.monotonic(), local_rank, ended.status))

    def _happen(self, happening: Happening) -> None:
        assert self._group is not None
        self._group, orders = supervise(self._group, happening)
        for order in orders:
            match order:
                case Terminate(local_ranks=ranks):
                    self._stop_began = time.monotonic()
                    self._signal(ranks, signal.SIGTERM)
                    self._starter.check()
                case Kill(local_ranks=ranks):
                    self._signal(ranks, signal.SIGKILL)
                case ReportFailure(local_rank=rank):
                    self._put(WorkersFailed(time.monotonic(), self._failure(rank)))
                case ReportDone():
                    self._clean_up()
                    self._put(WorkersDone(time.monotonic()))
                case ReportStopped():
                    self._clean_up()
                    self._group = None
                    self._ports.close()
                    self._ports = ReservedPorts(self._environment.ports(self._spec.workers))
                    self._journal.write("workers stopped", took=round(time.monotonic() - self._stop_began, 4))
                    self._put(WorkersStopped(time.monotonic(), self.ports))

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

    def _failure(self, local_rank: int) -> FailureRecord:
        assert self._assignment is not None
        worker, unstarted = self._workers.get(local_rank), self._unstarted.get(local_rank)
        return describe_failure(
            self._assignment,
            local_rank,
            pid=worker.pid if worker else 0,
            ended=worker.exit if worker and worker.exit else Exit(code=unstarted.exit_code if unstarted else 1),
            stderr=str(unstarted) if unstarted else self._output.tail(local_rank),
            folder=self.log_folder(self._assignment, local_rank),
            framework=self._spec.framework,
        )
