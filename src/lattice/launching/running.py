"""One run of a function by a crew: from the payload to the results, or to the error that the caller gets."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

from lattice.core.records import FailureRecord, OutcomeRecord
from lattice.errors import AgentFailedError, ResultNotReturned, WorkerFailedError
from lattice.launching.handlers import Origin
from lattice.launching.intake import Intake
from lattice.launching.logs import Logs
from lattice.launching.parcel import Parcel
from lattice.launching.problems import no_agents
from lattice.launching.raised import together
from lattice.launching.remains import Raised, Result, read
from lattice.launching.result import LaunchResult
from lattice.launching.room import GIGABYTE
from lattice.launching.supervisor import LOOK, Crew, Finished, Left, Lost, News, Node
from lattice.launching.sync.advice import advise

IMPATIENCE = 0.5
"""seconds that other workers have after the first failure that nothing follows; then they are killed"""
SETTLING = 5.0
"""seconds that nodes have to end a run that was broken off; those that take longer are let go"""


class Run:
    """Waits for the end of it."""

    def __init__(
        self, crew: Crew, settings: dict[str, Any], payload: Parcel, logs: Logs, cancelled: threading.Event
    ) -> None:
        self._crew = crew
        self._settings = settings
        self._payload = payload
        self._logs = logs
        self._left: dict[tuple[int, int], Left] = {}
        self._ends: list[Finished] = []
        self._lost = 0
        self._gone: list[tuple[str, str]] = []
        """hosts that take no part any more, and why"""
        self._first_gone: Origin | None = None
        self._leaving = False
        self._cancelled = cancelled
        self._refused: ResultNotReturned | None = None
        self._hurry_at: float | None = None
        self._members = len(crew.nodes)

    @property
    def blamed(self) -> Origin | None:
        """Tell whose failure ended it, if somebody's did."""
        cause = next((end.outcome.cause for end in self._ends if end.outcome is not None), None)
        if cause is not None:
            for (_, rank), left in reversed(self._left.items()):
                if rank == cause.rank:
                    return Origin(left.host.given, left.local_rank, left.host.index)
        return self._first_gone

    def wait(self, limit: float | None) -> LaunchResult[Any]:
        """
        Run to the end.

        :param limit: seconds after which it is stopped; None for never
        """
        self._crew.refuse_large(self._payload)
        image = os.memfd_create("lattice-payload", os.MFD_CLOEXEC)
        intake = Intake(self._logs)
        try:
            if any(node.host.transport == "local" for node in self._crew.nodes):
                self._payload.write(image)
            self._crew.begin(self._settings, self._payload, image, intake.put)
            ended = self._follow(None if limit is None else time.monotonic() + limit, limit)
        except BaseException:
            self._leave()
            self._settle()
            raise
        finally:
            os.close(image)
            intake.close()
        return ended

    def _settle(self) -> None:
        """Wait until every node has ended this run: in a pool the next one must not hear of it."""
        deadline = time.monotonic() + SETTLING
        while len(self._ends) + self._lost < self._members and time.monotonic() < deadline:
            news = self._crew.news(LOOK)
            if news is not None:
                self._take(news)
        ended = [end.node for end in self._ends]
        for node in [node for node in self._crew.nodes if node not in ended]:
            self._crew.lose(node)

    def _follow(self, deadline: float | None, limit: float | None) -> LaunchResult[Any]:
        while len(self._ends) + self._lost < self._members:
            news = self._crew.news(LOOK)
            now = time.monotonic()
            if news is not None:
                self._take(news)
            if self._refused is not None:
                raise self._refused
            if self._cancelled.is_set():
                raise InterruptedError("the launch was cancelled.")
            if deadline is not None and now >= deadline:
                raise TimeoutError(f"the function did not end within {limit:g}s (run_timeout).")
            if self._hurry_at is not None and now >= self._hurry_at:
                self._hurry_at = None
                self._crew.stop(leave=False)
        return self._conclude()

    def _take(self, news: News) -> None:
        match news:
            case Left(refused=size) if size:
                self._refused = ResultNotReturned(
                    f"rank {news.rank} on {news.host.given} returned {size / GIGABYTE:.2f} GiB, for which there is no "
                    "room here beside the results of others. Write it to a file, and return the path."
                )
            case Left():
                self._left[news.round, news.rank] = news
                if (news.code or news.signal) and not self._settings["max_restarts"] and self._hurry_at is None:
                    self._hurry_at = time.monotonic() + IMPATIENCE
            case Finished(node=node, message=message, outcome=outcome):
                self._ends.append(news)
                if outcome is None and not self._leaving:
                    self._go_on_without(node, message)
            case Lost(node=node, reason=reason) if node in self._crew.nodes:
                self._crew.lose(node)
                if node not in [end.node for end in self._ends]:  # else all that it had to say was heard
                    self._lost += 1
                    self._go_on_without(node, reason)
            case _:
                pass

    def _go_on_without(self, node: Node, reason: str) -> None:
        self._gone.append((node.host.given, reason))
        self._first_gone = self._first_gone or Origin(node.host.given, None, node.host.index)
        if self._members - len(self._gone) < self._settings["nodes"][0]:
            self._leave()

    def _leave(self) -> None:
        self._leaving = True
        self._crew.stop(leave=True)

    def _conclude(self) -> LaunchResult[Any]:
        outcome = next((end.outcome for end in self._ends if end.outcome is not None), None)
        if outcome is None or (self._gone and not outcome.succeeded and outcome.cause is None):
            raise no_agents(self._gone, "failed on")
        if not outcome.succeeded:
            raise self._failure(outcome)
        lefts = [left for (number, _), left in sorted(self._left.items()) if number == outcome.number]
        if len(lefts) < max((left.world for left in lefts), default=1):
            reason = "it was lost after its function had returned, and the results with it."
            raise no_agents([(host, f"{reason} {told}") for host, told in self._gone], "failed on")
        agents: dict[int, tuple[str, list[Any]]] = {}
        for left in lefts:
            found = read(left.image)
            if not isinstance(found, Result):
                raise WorkerFailedError(rank=left.rank, host=left.host.given, exit_code=left.code)
            _, values = agents.setdefault(left.host.index, (left.host.given, []))
            values.append(found.value(left.rank, left.host.given))
        return LaunchResult(agents.values())

    def _failure(self, outcome: OutcomeRecord) -> BaseException:
        """Give the first exception, with those of all other ranks that failed beside it."""
        failures = {failure.rank: failure for failure in (outcome.cause, *outcome.others) if failure is not None}
        lefts = {rank: left for (number, rank), left in sorted(self._left.items()) if number == outcome.number}
        errors = []
        for rank in dict.fromkeys((*failures, *lefts)):
            left, failure = lefts.get(rank), failures.get(rank)
            found = read(left.image) if left is not None else None
            if left is not None and isinstance(found, Raised):
                synced = self._settings["inside"] is not None
                errors.append(advise(found.exception(left.host.given), left.host.given, synced=synced))
            elif failure is not None:
                errors.append(_died(failure, left.host.given if left else failure.host))
        return together(errors) if errors else AgentFailedError(outcome.reason)


def _died(failure: FailureRecord, host: str) -> WorkerFailedError:
    return WorkerFailedError(
        rank=failure.rank,
        host=host,
        pid=failure.pid,
        exit_code=None if failure.signal else failure.code,
        signal=signal.Signals(failure.signal).name if failure.signal else "",
        stderr=failure.message,
        out_of_memory=failure.kind == "memory",
    )
