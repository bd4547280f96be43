"""The agent: one inbox, one loop; events go into the core, effects come out and are performed."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from selectors import EVENT_READ, BaseSelector

from lattice.agent.accounts import Accounts
from lattice.agent.group import WorkerGroup
from lattice.agent.inbox import Inbox
from lattice.agent.serving import RunStore
from lattice.agent.session import Session, SessionConnected
from lattice.agent.starting import Starter
from lattice.core.events import (
    Effect,
    Event,
    Finish,
    GoodbyeAsked,
    Note,
    StartWorkers,
    StopWorkers,
    Ticked,
    WorkersFailed,
    WorkersStopped,
)
from lattice.core.incident import describe
from lattice.core.keeper import RUN
from lattice.core.rendezvous import deadline, step
from lattice.core.spec import AgentSpec
from lattice.core.state import State, lease_of
from lattice.environments.store import store_variables
from lattice.process.gloo import Gloo
from lattice.process.spawning import Guard
from lattice.telemetry.console import Console
from lattice.telemetry.journal import Journal

ROUTINE = frozenset(("beginning run", "joining", "last call", "round sealed", "round left", "goodbye asked"))
"""events that are no news, or that the next one tells of too"""
ROUTINE_AT_FIRST = frozenset(("waiting", "round started"))
"""those that are none in the first round"""
HOUSEKEEPING = 30.0
"""seconds between two looks for orphans that running workers left"""


class Loop:
    """Runs until the core says how to leave."""

    def __init__(
        self,
        spec: AgentSpec,
        state: State,
        inbox: Inbox,
        session: Session,
        served: RunStore,
        group: WorkerGroup,
        accounts: Accounts,
        starter: Starter,
        guard: Guard,
        console: Console,
        journal: Journal,
        selector: BaseSelector,
    ) -> None:
        self._spec = spec
        self._state = state
        self._inbox = inbox
        self._session = session
        self._served = served
        self._group = group
        self._accounts = accounts
        self._starter = starter
        self._guard = guard
        self._console = console
        self._journal = journal
        self._selector = selector
        self._epoch = 0
        self._goodbyes = 0
        self._finish: Finish | None = None
        self._next_housekeeping = time.monotonic() + HOUSEKEEPING
        self._gloo = Gloo() if spec.framework == "pytorch" else None

    def run(self) -> Finish:
        """
        Take events until the end.

        :return: how to leave
        """
        self._selector.register(self._inbox, EVENT_READ, lambda: None)
        self._selector.register(self._guard, EVENT_READ, self._guard_died)
        try:
            while self._finish is None:
                self._turn()
        finally:
            self._selector.unregister(self._inbox)
            self._selector.unregister(self._guard)
        return self._finish

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._patience()):
            key.data()
        for event in self._inbox.take():
            self._handle(event)
        self._group.go_on()
        now = time.monotonic()
        moment = deadline(self._state)
        if moment is not None and moment <= now:
            self._handle(Ticked(now))
        if self._group.deadline is not None and self._group.deadline <= now:
            self._group.tick()
        if self._starter.deadline is not None and self._starter.deadline <= now:
            self._starter.handle()
        if now >= self._next_housekeeping:
            self._next_housekeeping = now + HOUSEKEEPING
            self._starter.sweep(keep=self._group.living)

    def signalled(self, number: int) -> None:
        """A signal came: the first is a goodbye, the second means at once."""
        self._goodbyes += 1
        if self._goodbyes == 1:
            self._inbox.put(GoodbyeAsked(time.monotonic(), number))
        elif self._goodbyes == 2:
            self._console.say(f"{signal.Signals(number).name} again: killing the workers at once")
            self.hurry()

    def hurry(self) -> None:
        """Give the workers no more time; the run goes on, or ends, as if they had ended by themselves."""
        self._group.hurry()

    @property
    def goodbyes(self) -> int:
        """Tell how often a signal has asked this agent to leave."""
        return self._goodbyes

    def listen(self, seconds: float) -> bool:
        """
        Hear signals after the end of the loop.

        :return: whether this agent was ever asked to leave by one
        """
        for key, _ in self._selector.select(seconds):
            key.data()
        return self._goodbyes > 0

    def _patience(self) -> float:
        moments = [self._next_housekeeping, deadline(self._state), self._group.deadline, self._starter.deadline]
        return max(min(moment for moment in moments if moment is not None) - time.monotonic(), 0.0)

    def _guard_died(self) -> None:
        self._selector.unregister(self._guard)
        self._guard.restart()
        self._selector.register(self._guard, EVENT_READ, self._guard_died)
        self._journal.write("guard replaced", pid=self._guard.pid)

    def _handle(self, event: Event) -> None:
        if isinstance(event, SessionConnected):
            self._epoch = event.epoch
            if not self._state.met and not self._spec.local_addr:
                # Known only now that the store's name has been resolved.
                self._state = replace(self._state, me=replace(self._state.me, address=self._served.address()))
            self._journal.write("store connected", lease=event.lease, revision=event.revision, emptied=event.emptied)
        elif isinstance(event, WorkersFailed):
            self._console.say(describe(event.failure), routine=True)
            self._accounts.disturbed(event.at if event.since is None else event.since, event.at, self._group.steps)
        elif isinstance(event, WorkersStopped):
            self._accounts.stopped(event.at)
        self._state, effects = step(self._state, event)
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Note(event=name, text=text, facts=facts):
                self._journal.write(name, **facts)
                if text:
                    routine = name in ROUTINE or (name in ROUTINE_AT_FIRST and facts["round"] == 1)
                    self._console.say(text, routine=routine)
            case StartWorkers(assignment=assignment, kind=kind):
                self._accounts.ordered(assignment.round, kind)
                self._group.start(assignment, self._further_variables())
            case StopWorkers(reason=reason, manner=manner):
                self._journal.write("workers stopping", reason=reason)
                now = time.monotonic()
                if self._group.living or self._state.ending is None:  # done, and the run ends: nothing is lost by that
                    self._accounts.disturbed(now, now, self._group.steps)
                self._group.stop(reason, manner)
            case Finish():
                self._finish = effect
            case _:
                self._session.perform(effect, self._epoch)

    def _further_variables(self) -> dict[str, str]:
        """Give the variables of workers that are known only now that the nodes have met."""
        run = {RUN: self._state.uuid}
        if self._gloo is None:
            return run
        stored = store_variables(self._spec.store, lease_of(self._state.uuid, "run"))
        return run | stored | self._gloo.variables(self._state.me.address, self._starter.shared)


class Signals:
    """Turns signals into calls from the loop, so that a handler never interrupts anything."""

    def __init__(self, numbers: tuple[int, ...], loop: Loop, selector: BaseSelector) -> None:
        self._loop = loop
        self._selector = selector
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # One that is ignored stays so: nohup means it.
        heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, lambda *_: None) for number in heard}
        self._before_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        selector.register(self._read, EVENT_READ, self._came)

    def _came(self) -> None:
        for number in os.read(self._read, 64):
            if number in self._before:
                self._loop.signalled(number)

    def close(self) -> None:
        """Put everything back as it was."""
        self._selector.unregister(self._read)
        signal.set_wakeup_fd(self._before_fd)
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        os.close(self._read)
        os.close(self._write)
