"""A simulated agent: the real protocol, with a simulated session and simulated workers in place of the shell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lattice.core import rendezvous
from lattice.core.events import Event, Finish, GoodbyeAsked, Note, StartWorkers, StopWorkers, Ticked
from lattice.core.spec import Policy
from lattice.core.state import Identity
from tests.simulation.session import Session
from tests.simulation.workers import SimulatedWorkers

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster


class SimulatedAgent:
    """One agent process on one node."""

    def __init__(self, cluster: Cluster, name: str, policy: Policy, *, workers: int, rank: int | None) -> None:
        self.cluster, self.world = cluster, cluster.world
        self.name, self.policy = name, policy
        self.me = Identity(
            run_id=cluster.run_id,
            incarnation=name,
            host=f"host-{name}",
            address=f"10.0.0.{name}",
            workers=workers,
            rank=rank,
            whole_roster=cluster.world.chance(0.3),
        )
        self.alive = True
        self.paused = False
        self.cut = False
        """whether the network between it and the store is gone"""
        self.finish: Finish | None = None
        self.left = False
        """whether it was told to leave"""
        self.hurt: list[tuple[float, str]] = []
        """what was done to it, for judging how it ended"""
        self.workers = SimulatedWorkers(self)
        self.session = Session(self, cluster.store)
        self.state = rendezvous.begin(self.me, policy, cluster.fresh_ports(), self.world.now)
        self._deferred: list[Callable[[], object]] = []
        self._tick_at: float | None = None
        self.world.note(name, "started")
        self.later(self.world.between(0.0, 0.05), self.session.connect)

    @property
    def running(self) -> bool:
        return self.alive and self.finish is None

    def later(self, delay: float, action: Callable[[], object]) -> None:
        """Let this process do something after a while, if it still can; what a paused one misses it does afterwards."""

        def act() -> None:
            if self.paused:
                self._deferred.append(act)
            elif self.running:
                action()

        self.world.later(delay, act)

    def take(self, event: Event) -> None:
        """Step the protocol and do what it says."""
        if not self.running:
            return
        if self.paused:
            self._deferred.append(lambda: self.take(event))
            return
        self.cluster.count_step()
        self.state, effects = rendezvous.step(self.state, event)
        self.world.trace.append((self.world.now, self.name, (event, effects)))
        for effect in effects:
            match effect:
                case StartWorkers(assignment=assignment):
                    self.workers.start(assignment)
                case StopWorkers(manner=manner):
                    self.workers.stop(manner)
                case Finish():
                    self.cluster.monitor.finished(self, effect)
                    self.session.close()
                    self.finish = effect
                    self.cluster.live -= 1
                    return
                case Note():
                    pass
                case _:
                    self.session.perform(effect)
        self._wind()

    def _wind(self) -> None:
        deadline = rendezvous.deadline(self.state)
        if deadline is None or deadline == self._tick_at:
            return
        self._tick_at = deadline

        def tick() -> None:
            if self._tick_at == deadline:
                self._tick_at = None
                self.take(Ticked(self.world.now))

        self.later(max(0.0, deadline - self.world.now), tick)

    # -- what may be done to it ------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Kill it and its workers: nobody is told."""
        if not self.running:
            return
        self.world.note(self.name, "CRASHED")
        self.cluster.monitor.crashed(self)
        self.alive = False
        self.cluster.live -= 1
        self.workers.kill()
        self.session.epoch += 1
        if self.session.watch is not None:
            self.session.watch.cancel()

    def pause(self, seconds: float) -> None:
        """Stop the process, not its workers."""
        if not self.running or self.paused:
            return
        self.world.note(self.name, f"PAUSED for {seconds:.1f}s")
        self.hurt.append((self.world.now, "paused"))
        self.paused = True
        self.world.later(seconds, self.resume)

    def resume(self) -> None:
        if not self.paused:
            return
        self.world.note(self.name, "RESUMED")
        self.paused = False
        deferred, self._deferred = self._deferred, []
        for action in deferred:
            action()

    def goodbye(self, signal: int = 15) -> None:
        """Tell it to leave."""
        if self.running:
            self.left = True
            self.cluster.monitor.leaves(self)
            self.take(GoodbyeAsked(self.world.now, signal))

    def partition(self, seconds: float) -> None:
        """Cut it from the store, in silence."""
        if self.cut or not self.running:
            return
        self.world.note(self.name, f"CUT for {seconds:.1f}s")
        self.hurt.append((self.world.now, "cut"))
        self.cut = True
        self.world.later(seconds, self.heal)

    def heal(self) -> None:
        if self.cut:
            self.world.note(self.name, "HEALED")
            self.cut = False
            if self.session.watch is not None:
                self.session.watch.healed()
