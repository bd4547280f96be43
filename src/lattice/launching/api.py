"""``lattice.launch``: run a function on many hosts, and get its results, or its exception."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from lattice.launching.blame import tell_more
from lattice.launching.display.lines import PlainLines
from lattice.launching.display.overview import Overview
from lattice.launching.display.showing import shown
from lattice.launching.display.states import HostStatus
from lattice.launching.handlers import Origin, default_handlers
from lattice.launching.hosts import WrongArgument, resolve
from lattice.launching.kept import Kept, LogLines
from lattice.launching.logs import Logs
from lattice.launching.result import LaunchResult
from lattice.launching.running import Run
from lattice.launching.settings import (
    Backend,
    Handlers,
    Hostnames,
    OnlyInPython,
    Progress,
    Settings,
    WorkersPerHost,
    check,
)
from lattice.launching.supervisor import Crew
from lattice.launching.task import Task, pack
from lattice.launching.transports import node_program, transport
from lattice.launching.variables import DEFAULT_PATTERNS, select

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(kw_only=True)
class Launcher:
    """Settings of a launch. As a context manager it keeps its agents and warm workers for several runs."""

    hostnames: Hostnames = "auto"
    """hosts to run on; auto for those of the SLURM allocation, or this one"""
    workers_per_host: WorkersPerHost = "auto"
    """workers on each host; auto for its GPUs, or its CPUs if it has none"""
    ssh_config_file: str | Path | None = None
    """SSH configuration to use in place of the user's own"""
    backend: Backend = "auto"
    """process group to form; auto for nccl with GPUs and gloo without, None for none"""
    timeout: int = 600
    """seconds for the process group's operations, and for starting and stopping; the function has no limit"""
    default_env_vars: tuple[str, ...] = DEFAULT_PATTERNS
    """patterns of variables that are copied to the workers"""
    extra_env_vars: tuple[str, ...] = ()
    """further patterns"""
    env_file: str | Path | None = None
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
    sync: str | Path | None = None
    """project folder that hosts other than this one are sent; auto for the one of the script, None for nothing"""
    python: str | None = None
    """interpreter on the hosts; None for the path of this one"""
    log_handlers: OnlyInPython[Handlers] = field(default="auto", repr=False)
    """what log records go to; auto for the console and files"""
    progress: Progress = "auto"
    """whether to show how the hosts stand while the caller waits; auto for only if that takes more than a second"""

    def __post_init__(self) -> None:
        check(vars(self))
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
        overview = Overview()
        self._crew = self._recruit()
        self._crew.hear = overview.hear
        overview.begin(self._crew.hosts, ())
        try:
            with shown(overview.hosts, self.progress):
                self._crew.assemble(self.min_hosts or len(self._crew.hosts), threading.Event())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        crew, self._crew = self._crew, None
        if crew is not None:
            crew.close()

    def _recruit(self) -> Crew:
        hosts = resolve(self.hostnames, self.workers_per_host, os.environ)
        if self.min_hosts is not None and not 1 <= self.min_hosts <= len(hosts):
            raise WrongArgument(f"min_hosts must be 1 to {len(hosts)}, the number of hosts, not {self.min_hosts!r}")
        config = None if self.ssh_config_file is None else Path(self.ssh_config_file)
        program = node_program(self.python)
        ways = {name: transport(name, program, config) for name in {host.transport for host in hosts}}
        return Crew(hosts, ways, self.timeout)

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
            "inside": None,
            "preloaded": "",
            "project": "",
        }

    def _execute(self, task: Task, handle: LaunchHandle[Any]) -> LaunchResult[Any]:
        project = None
        if self.sync is not None:
            from lattice.launching.sync.project import Project  # few launches need it

            project = Project(self.sync)
        payload = pack(task, project=project.root if project else None)
        with self._lock:  # one at a time within a pool
            kept = self._crew
            crew = kept or self._recruit()
            given = self.log_handlers
            names = [host.given for host in crew.hosts]
            handlers = default_handlers(hostnames=names) if given == "auto" else list(given or ())
            logs = Logs(handlers, handle.kept)
            handle.overview.begin(crew.hosts, crew.nodes)
            crew.hear = handle.overview.hear
            run: Run | None = None
            try:
                if project is not None:
                    project.read(crew.hosts)
                minimum = self.min_hosts or len(crew.hosts)
                crew.assemble(minimum, handle.cancelled)
                settings = self._settings()
                settings["run_id"] = f"launch-{os.urandom(8).hex()}"
                settings["nodes"] = [minimum, len(crew.nodes)]
                if project is not None:
                    first = Origin(crew.hosts[0].given, None)
                    project.bring(
                        crew,
                        settings,
                        say=lambda text: logs.feed(first, "stdout", f"{text}\n".encode(errors="backslashreplace")),
                        cancelled=handle.cancelled,
                    )
                run = Run(crew, settings, payload, logs, handle.cancelled)
                handle.attach(run)
                return run.wait(self.run_timeout)
            except BaseException as error:
                if run is not None:
                    tell_more(error, run.blamed, logs, handlers)
                raise
            finally:
                logs.close(handlers=given == "auto")
                if kept is None:
                    crew.close()


class LaunchHandle(Generic[R]):
    """A launch that goes on in the background."""

    def __init__(self, launcher: Launcher, task: Task) -> None:
        self.overview = Overview()
        self.kept = Kept()
        self._told = PlainLines()
        self._launcher = launcher
        self._task = task
        self._run: Run | None = None
        self.cancelled = threading.Event()
        """set once it shall be stopped"""
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
            with shown(self.overview.hosts, self._launcher.progress, self._told):
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
        self.cancelled.set()

    def status(self) -> str:
        """Tell how it stands: starting, running, succeeded, failed or cancelled."""
        if not self._done.is_set():
            return "starting" if self._run is None else "running"
        if self._error is None:
            return "succeeded"
        return "cancelled" if self.cancelled.is_set() else "failed"

    def hosts(self) -> tuple[HostStatus, ...]:
        """Tell how each host stands, in the order of the launch; nothing before they are known."""
        return self.overview.hosts()

    def logs(
        self,
        hostname: str | None = None,
        local_rank: int | Literal["all"] | None = "all",
        *,
        follow: bool = False,
    ) -> LogLines:
        """
        Give what was logged, as tuples of hostname, local rank, stream and text.

        The last 8 MB are kept in memory: what older lines are missing is counted in ``dropped`` of what this gives.

        :param hostname: of one host, as it was given to the launch; None for all
        :param local_rank: of one worker; None for the agent itself
        :param follow: whether to go on until the launch ends
        """

        def takes(origin: Origin) -> bool:
            return hostname in (None, origin.hostname) and local_rank in ("all", origin.local_rank)

        return LogLines(self.kept, takes, follow=follow)

    def attach(self, run: Run) -> None:
        """Hear from the launcher that all hosts are there."""
        self._run = run

    def _work(self) -> None:
        try:
            self._result = self._launcher._execute(self._task, self)
        except BaseException as error:
            self._error = error
        finally:
            self.kept.end()
            self._done.set()


@overload
def launch(
    func: Callable[..., R],
    func_args: Sequence[Any] = ...,
    func_kwargs: Mapping[str, Any] | None = ...,
    *,
    wait: Literal[True] = ...,
    **settings: Unpack[Settings],
) -> LaunchResult[R]: ...


@overload
def launch(
    func: Callable[..., R],
    func_args: Sequence[Any] = ...,
    func_kwargs: Mapping[str, Any] | None = ...,
    *,
    wait: Literal[False],
    **settings: Unpack[Settings],
) -> LaunchHandle[R]: ...


@overload
def launch(
    func: Callable[..., R],
    func_args: Sequence[Any] = ...,
    func_kwargs: Mapping[str, Any] | None = ...,
    *,
    wait: bool,
    **settings: Unpack[Settings],
) -> LaunchResult[R] | LaunchHandle[R]: ...


def launch(
    func: Callable[..., R],
    func_args: Sequence[Any] = (),
    func_kwargs: Mapping[str, Any] | None = None,
    *,
    wait: bool = True,
    **settings: Unpack[Settings],
) -> LaunchResult[R] | LaunchHandle[R]:
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
