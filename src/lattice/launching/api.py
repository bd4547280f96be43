"""``lattice.launch``: run a function on many hosts, and get its results, or its exception."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from logging import Handler
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, ParamSpec, Self, TypeVar

from lattice.launching.handlers import default_handlers
from lattice.launching.hosts import resolve
from lattice.launching.logs import Logs
from lattice.launching.result import LaunchResult
from lattice.launching.running import Run
from lattice.launching.supervisor import Crew
from lattice.launching.task import Task, pack
from lattice.launching.transports import node_program, transport
from lattice.launching.variables import DEFAULT_PATTERNS, select

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(kw_only=True)
class Launcher:
    """Settings of a launch. As a context manager it keeps its agents and warm workers for several runs."""

    hostnames: list[str] | Literal["auto", "slurm"] = "auto"
    """hosts to run on; auto for those of the SLURM allocation, or this one"""
    workers_per_host: int | list[int] | Literal["auto", "cpu", "gpu", "slurm"] = "auto"
    """workers on each host; auto for its GPUs, or its CPUs if it has none"""
    ssh_config_file: str | os.PathLike[str] | None = None
    """SSH configuration to use in place of the user's own"""
    backend: Literal["nccl", "gloo", "mpi", "ucc", "auto"] | None = "auto"
    """process group to form; auto for nccl with GPUs and gloo without, None for none"""
    timeout: int = 600
    """seconds for the process group's operations, and for starting and stopping; the function has no limit"""
    default_env_vars: tuple[str, ...] = DEFAULT_PATTERNS
    """patterns of variables that are copied to the workers"""
    extra_env_vars: tuple[str, ...] = ()
    """further patterns"""
    env_file: str | os.PathLike[str] | None = None
    """file that bash reads on each host for further variables"""
    max_restarts: int = 0
    """failures of workers or hosts after which the function is run again on all"""
    min_hosts: int | None = None
    """hosts that are enough to go on with; None for all of them"""
    framework: str = "pytorch"
    """whose variables the workers get"""
    run_timeout: float | None = None
    """seconds that the function may take; None for no limit"""
    shutdown_timeout: float = 5.0
    """seconds that workers have to end after SIGTERM"""
    preload: str = ""
    """modules that are imported once on each host, before workers are forked; none for fresh interpreters"""
    python: str | None = None
    """interpreter on the hosts; None for the path of this one"""
    log_handlers: list[Handler] | Literal["auto"] | None = field(default="auto", repr=False)
    """what log records go to; auto for the console and files"""

    def __post_init__(self) -> None:
        self._crew: Crew | None = None
        self._lock = threading.Lock()

    def run(self, func: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> LaunchResult[R]:
        """
        Run a function in every worker.

        :param func: anything that can be called
        :return: what each worker's call gave
        :raises WorkerFailedError: a worker died
        :raises AgentFailedError: an agent could not be started, or was lost
        :raises BaseException: whatever the function raised first, with the remote traceback as a note
        """
        return self.start(func, *args, **kwargs).result()

    def start(self, func: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> LaunchHandle[R]:
        """Begin to run a function in every worker, and return at once."""
        return LaunchHandle(self, Task(func, args, kwargs, self.backend, self.timeout))

    def __enter__(self) -> Self:
        self._crew = self._assemble()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        crew, self._crew = self._crew, None
        if crew is not None:
            crew.close()

    def _assemble(self) -> Crew:
        hosts = resolve(self.hostnames, self.workers_per_host, os.environ)
        config = None if self.ssh_config_file is None else Path(self.ssh_config_file)
        program = node_program(self.python)
        ways = {name: transport(name, program, config) for name in {host.transport for host in hosts}}
        crew = Crew(hosts, ways, self.timeout)
        crew.assemble(self.min_hosts or len(hosts))
        return crew

    def _settings(self) -> dict[str, Any]:
        return {
            "max_restarts": self.max_restarts,
            "timeout": self.timeout,
            "framework": self.framework,
            "shutdown_timeout": self.shutdown_timeout,
            "preload": self.preload,
            "variables": select(os.environ, self.default_env_vars, self.extra_env_vars),
            "env_file": os.fspath(self.env_file) if self.env_file else "",
            "cwd": os.getcwd(),  # noqa: PTH109
        }

    def _execute(self, task: Task, handle: LaunchHandle[Any]) -> LaunchResult[Any]:
        payload = pack(task)
        with self._lock:  # one at a time within a pool
            kept = self._crew
            crew = kept or self._assemble()
            given = self.log_handlers
            handlers = default_handlers() if given == "auto" else list(given or ())
            logs = Logs(handlers)
            try:
                settings = self._settings()
                settings["run_id"] = f"launch-{os.urandom(8).hex()}"
                settings["nodes"] = [min(self.min_hosts or len(crew.nodes), len(crew.nodes)), len(crew.nodes)]
                run = Run(crew, settings, payload, logs)
                handle.attach(run)
                return run.wait(self.run_timeout)
            finally:
                logs.close(handlers=given == "auto")
                if kept is None:
                    crew.close()


class LaunchHandle(Generic[R]):
    """A launch that goes on in the background."""

    def __init__(self, launcher: Launcher, task: Task) -> None:
        self._launcher = launcher
        self._task = task
        self._run: Run | None = None
        self._cancelled = False
        self._result: LaunchResult[R] | None = None
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, name="lattice launch", daemon=True)
        self._thread.start()

    def result(self, timeout: float | None = None) -> LaunchResult[R]:
        """
        Wait for the end.

        :param timeout: seconds; None for no limit
        :raises TimeoutError: it has not ended in that time, and goes on
        """
        try:
            ended = self._done.wait(timeout)
        except BaseException:  # Ctrl-C: nothing shall be left behind
            self.cancel()
            self._done.wait()
            raise
        if not ended:
            raise TimeoutError(f"the launch has not ended within {timeout:g}s; it goes on.")
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def cancel(self) -> None:
        """Have it stopped; :meth:`result` raises then."""
        self._cancelled = True
        if self._run is not None:
            self._run.cancel()

    def status(self) -> str:
        """Tell how it stands: starting, running, succeeded, failed or cancelled."""
        if not self._done.is_set():
            return "starting" if self._run is None else "running"
        if self._error is None:
            return "succeeded"
        return "cancelled" if self._cancelled else "failed"

    def attach(self, run: Run) -> None:
        """Hear from the launcher what can be cancelled."""
        self._run = run
        if self._cancelled:
            run.cancel()

    def _work(self) -> None:
        try:
            self._result = self._launcher._execute(self._task, self)
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()


def launch(
    func: Callable[..., R],
    func_args: Sequence[Any] = (),
    func_kwargs: Mapping[str, Any] | None = None,
    *,
    wait: bool = True,
    **settings: Any,
) -> Any:
    """
    Run a function in workers on one or many hosts.

    :param func: anything that can be called
    :param func_args: its arguments
    :param func_kwargs: its named arguments
    :param wait: whether to wait for the end; otherwise a :class:`LaunchHandle` is returned at once
    :param settings: fields of :class:`Launcher`
    :return: a :class:`LaunchResult`
    """
    known = {one.name for one in fields(Launcher)}
    wrong = sorted(set(settings) - known)
    if wrong:
        raise TypeError(f"launch() has no setting {', '.join(wrong)}; there are {', '.join(sorted(known))}")
    handle = Launcher(**settings).start(func, *func_args, **(func_kwargs or {}))
    return handle.result() if wait else handle
