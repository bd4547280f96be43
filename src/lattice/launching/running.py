"""One run of a function by a crew: from the payload to the results, or to the error that the caller gets."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

from lattice.core.records import FailureRecord, OutcomeRecord
from lattice.errors import AgentFailedError, WorkerFailedError
from lattice.launching.handlers import Origin
from lattice.launching.hosts import HostSpec
from lattice.launching.logs import Logs
from lattice.launching.parcel import Parcel
from lattice.launching.remains import Raised, Result, read
from lattice.launching.result import LaunchResult
from lattice.launching.supervisor import Crew, Finished, Left, Lost, News, no_agents

IMPATIENCE = 0.5
"""seconds that other workers have after the first failure that nothing follows; then they are killed"""
SETTLING = 5.0
"""seconds that nodes have to end a run that was broken off; those that take longer are let go"""
LOOK = 0.1
"""seconds between two looks at what the caller wants"""


class Run:
    """Waits for the end of it."""

    def __init__(self, crew: Crew, settings: dict[str, Any], payload: Parcel, logs: Logs) -> None:
        self._crew = crew
        self._settings = settings
        self._payload = payload
        self._logs = logs
        self._logging = threading.Lock()
        self._left: dict[tuple[int, int], Left] = {}
        self._ends: list[Finished] = []
        self._lost: list[tuple[str, str]] = []
        self._cancelled = threading.Event()
        self._hurry_at: float | None = None
        self._members = len(crew.nodes)

    def cancel(self) -> None:
        """Have it stopped."""
        self._cancelled.set()

    def wait(self, limit: float | None) -> LaunchResult[Any]:
        """
        Run to the end.

        :param limit: seconds after which it is stopped; None for never
        """
        image = os.memfd_create("lattice-payload", os.MFD_CLOEXEC)
        try:
            self._payload.write(image)
            self._crew.begin(self._settings, self._payload, image, self._log)
            ended = self._follow(None if limit is None else time.monotonic() + limit, limit)
        except BaseException:
            self._crew.stop(leave=True)
            self._settle()
            raise
        finally:
            os.close(image)
        return ended

    def _settle(self) -> None:
        """Wait until every node has ended this run: in a pool the next one must not hear of it."""
        deadline = time.monotonic() + SETTLING
        while len(self._ends) + len(self._lost) < self._members and time.monotonic() < deadline:
            news = self._crew.news(LOOK)
            if news is not None:
                self._take(news)
        ended = [end.node for end in self._ends]
        for node in [node for node in self._crew.nodes if node not in ended]:
            self._crew.lose(node)

    def _log(self, host: HostSpec, local_rank: int, stream: str, data: bytes) -> None:
        with self._logging:
            self._logs.feed(Origin(host.given, local_rank, host.index), stream, data)

    def _follow(self, deadline: float | None, limit: float | None) -> LaunchResult[Any]:
        while len(self._ends) + len(self._lost) < self._members:
            news = self._crew.news(LOOK)
            now = time.monotonic()
            if news is not None:
                self._take(news)
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
            case Left():
                self._left[news.round, news.rank] = news
                if (news.code or news.signal) and not self._settings["max_restarts"] and self._hurry_at is None:
                    self._hurry_at = time.monotonic() + IMPATIENCE
            case Finished():
                self._ends.append(news)
            case Lost(node=node, reason=reason):
                if node not in self._crew.nodes:
                    return
                self._lost.append((node.host.given, reason))
                self._crew.lose(node)
                if len(self._crew.nodes) < self._settings["nodes"][0]:
                    self._crew.stop(leave=True)
            case _:
                pass

    def _conclude(self) -> LaunchResult[Any]:
        outcome = next((end.outcome for end in self._ends if end.outcome is not None), None)
        if outcome is None or (self._lost and not outcome.succeeded and outcome.cause is None):
            raise no_agents(self._lost or [(end.node.host.given, end.message) for end in self._ends if end.message])
        if not outcome.succeeded:
            raise self._failure(outcome)
        agents: dict[int, tuple[str, list[Any]]] = {}
        for (number, rank), left in sorted(self._left.items()):
            if number == outcome.number:
                found = read(left.image)
                if not isinstance(found, Result):
                    raise WorkerFailedError(rank=rank, host=left.host.given, exit_code=left.code)
                _, values = agents.setdefault(left.host.index, (left.host.given, []))
                values.append(found.value(rank, left.host.given))
        return LaunchResult(agents.values())

    def _failure(self, outcome: OutcomeRecord) -> BaseException:
        raised = []
        for failure in (outcome.cause, *outcome.others):
            left = self._left.get((outcome.number, failure.rank)) if failure is not None else None
            found = read(left.image) if left is not None else None
            if left is not None and isinstance(found, Raised):
                raised.append(found.exception(left.host.given))
            elif failure is not None:
                raised.append(_died(failure, left.host.given if left else failure.host))
        if not raised:
            return AgentFailedError(outcome.reason)
        return raised[0]


def _died(failure: FailureRecord, host: str) -> WorkerFailedError:
    return WorkerFailedError(
        rank=failure.rank,
        host=host,
        pid=failure.pid,
        exit_code=None if failure.signal else failure.code,
        signal=signal.Signals(failure.signal).name if failure.signal else "",
        stderr=failure.message,
    )
