"""How a worker comes to life: forked from a warm interpreter where that is possible, from a fresh one otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from selectors import EVENT_READ, BaseSelector
from typing import TYPE_CHECKING

from lattice.core.board import NOTICE_VARIABLE, VARIABLE
from lattice.core.keeper import RUN
from lattice.core.keeper import VARIABLE as KEEPER
from lattice.core.roles import KEY
from lattice.core.spec import AgentSpec
from lattice.core.topology import Assignment, RosterEntry
from lattice.environments import Environment
from lattice.environments.identity import identity
from lattice.environments.job import job_variables
from lattice.environments.store import store_variables
from lattice.process.gloo import INTERFACE
from lattice.process.spawning import Guard
from lattice.process.workers import Worker

if TYPE_CHECKING:
    from lattice.process.warming import Zygote

MARKER = "LATTICE_AGENT"
"""the variable by which everything that descends from a worker is found"""
NOBODY = Assignment("", 0, 0, 0, "", RosterEntry("", 0, 0, 1, "", "", (0,)), 1, 1, "", 0)


class Starter:
    """Starts workers of one command in one environment, of which only the late variables differ."""

    def __init__(
        self,
        spec: AgentSpec,
        environment: Environment,
        incarnation: str,
        cwd: str,
        guard: Guard,
        selector: BaseSelector,
        say: Callable[[str], None],
        late: frozenset[str] = frozenset(),
    ) -> None:
        self._spec = spec
        self._environment = environment
        self._cwd = cwd
        self._guard = guard
        self._selector = selector
        self._say = say
        self._further_late = late
        self._zygote: Zygote | None = None
        self._postponed = False
        self._said_cold = False
        self._worth_waiting = False
        self.changed: Callable[[], None] = lambda: None
        """called when a worker that was worth waiting for may be had"""
        inherited = {name: value for name, value in os.environ.items() if name not in spec.strip}
        inherited.pop(KEY, None)  # of a job that this agent runs in
        self.shared = {
            **inherited,
            **environment.defaults(spec.workers, inherited),
            **job_variables(spec.job, spec.store),
            MARKER: incarnation,
        }
        """what all workers have in their environment"""

    def warm_up(self) -> None:
        """
        Begin to import what the workers will need, while the nodes still look for each other.

        Not before the first workers run if their script does not even mention it: they would only wait for the cores.
        """
        if not self._spec.command.python or self._spec.preload == "none" or self._zygote is not None:
            return
        if not self._spec.preload and self._spec.framework != "pytorch":
            return
        self._postponed = not self._mentioned()
        if not self._postponed:
            self._make()

    def started(self) -> None:
        """Hear that the workers of a round run."""
        if self._postponed:
            self._postponed = False
            self._make()

    def _mentioned(self) -> bool:
        """Tell whether the script may import what is preloaded; a quick look, in doubt yes."""
        if self._spec.preload:
            return True
        scripts = [word for word in self._spec.command.argv[1:] if word.endswith(".py")]
        try:
            return not scripts or b"torch" in Path(self._cwd, scripts[0]).read_bytes()
        except OSError:
            return True

    def _make(self) -> None:
        # Loaded only here: not every agent needs it, and none before its first workers.
        from lattice.process.preloading import imports_any, preload_set, read_command
        from lattice.process.warming import Zygote

        command = read_command(self._spec.command.argv, self.shared, self._cwd)
        if isinstance(command, str):
            return  # such a command line is started afresh, and nobody asked for anything else
        preload = preload_set(self._spec.preload, self._spec.framework, command, self._cwd)
        if preload.note:
            self._say(preload.note)
        if not preload.modules:
            return
        self._zygote = Zygote(
            self._guard, command, self.shared, self._cwd, MARKER, preload.modules, self._late(), self._spec.workers
        )
        self._worth_waiting = imports_any(preload.modules, command, self._cwd)
        self._selector.register(self._zygote, EVENT_READ, self.handle)

    def _late(self) -> frozenset[str]:
        """Name the variables that differ between workers and rounds; a change of any other needs a fresh start."""
        ranks = identity(NOBODY, 0) | dict(self._environment.variables(NOBODY, 0, ""))
        told = (VARIABLE, NOTICE_VARIABLE, KEEPER, RUN, INTERFACE, "CUDA_VISIBLE_DEVICES")
        return frozenset((*ranks, *store_variables(self._spec.store, 1), *told, *self._further_late))

    @property
    def waits(self) -> bool:
        """Tell whether workers start sooner if they wait for the imports that are under way."""
        return self._worth_waiting and self._zygote is not None and self._zygote.starting

    @property
    def deadline(self) -> float | None:
        """Tell when :meth:`handle` is needed."""
        return self._zygote.deadline if self._zygote else None

    def handle(self) -> None:
        """Hear what the zygote has to say."""
        if self._zygote is not None:
            self._zygote.handle()
            for note in self._zygote.take_notes():
                self._say(note)
        self.changed()

    def spawn(self, environ: Mapping[str, str], stdout: int, stderr: int) -> Worker:
        """
        Start a worker.

        :param environ: its whole environment
        :param stdout: descriptor for its standard output; the caller closes its own copy
        :param stderr: descriptor for its standard error; the caller closes its own copy
        :raises WorkerNotStarted: the program could not be executed
        """
        if self._zygote is not None:
            was_ready = self._zygote.ready
            worker = self._zygote.fork(environ, self._cwd, None, stdout, stderr)
            if worker is not None:
                worker.warm = True
                return worker
            if was_ready and not self._said_cold:
                self._said_cold = True
                self._say(f"starting a fresh interpreter: {self._zygote.reason}")
        return self._guard.spawn(self._spec.command.argv, environ, self._cwd, None, stdout, stderr, MARKER)

    def check(self) -> None:
        """Have changed packages noticed before the next round; for moments in which nobody waits."""
        if self._zygote is not None:
            self._zygote.check()

    def sweep(self, keep: tuple[int, ...] = ()) -> None:
        """End whatever ended workers left behind."""
        if self._zygote is not None:
            self._zygote.handle()
        self._guard.sweep(keep=keep, spare=self._zygote.pids if self._zygote else ())

    def close(self) -> None:
        """End the zygote and those that wait in it."""
        if self._zygote is not None:
            self._selector.unregister(self._zygote)
            self._zygote.close()
            self._zygote = None
            self._guard.sweep()
