"""What the user asked for, as values: every field is set by one option and read by everybody below."""

from __future__ import annotations

from dataclasses import field

from lattice.core.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class NodeRange:
    """How many nodes a run may have."""

    minimum: int
    maximum: int

    def __str__(self) -> str:
        return str(self.minimum) if self.minimum == self.maximum else f"{self.minimum}:{self.maximum}"


@dataclass(frozen=True, slots=True)
class Policy:
    """What rendezvous decides by. Durations are seconds."""

    nodes: NodeRange
    max_restarts: int = 0
    """worker failures that the whole job may restart after"""
    join_timeout: float = 600.0
    """how long to wait for the minimum of nodes"""
    last_call: float = 5.0
    """how long after the last join to wait for more, between minimum and maximum"""
    lease_ttl: float = 5.0
    """how long a silent node counts as alive"""
    store_grace: float = 120.0
    """how long workers go on without the store"""
    connect_timeout: float = 60.0
    """how long to try to reach the store at the start"""
    grow_interval: float = 30.0
    """at least this long between two rounds that only admit newcomers"""
    outcome_ttl: float = 60.0
    """how long the outcome of a run can be read after its end"""
    run_ttl: float = 600.0
    """how long the records of a run without a leader are kept"""


@dataclass(frozen=True, slots=True)
class Command:
    """What a worker executes."""

    argv: tuple[str, ...]
    """the program and its arguments, ready to be executed"""
    display: str
    """what the user wrote, for messages"""
    python: bool = False
    """whether argv[0] is a Python interpreter (a warm start is possible)"""


@dataclass(frozen=True, slots=True)
class StoreSpec:
    """Where the agents of a run meet."""

    backend: str = "memory"
    """memory, etcd, or embedded (node 0 serves its own store)"""
    endpoints: tuple[tuple[str, int], ...] = ()
    """addresses of the store, tried in turn"""
    endpoints_file: str = ""
    """etcd only: where its addresses are to be found, at every attempt to connect, in place of ``endpoints``"""
    serve: bool | None = False
    """embedded only: whether this agent serves the store; None for whichever agent here takes the port first"""
    user: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""
    """where the password came from, if from a file: workers are told the file"""
    cacert: str = ""
    """whom to trust; it, or with etcd a certificate of our own, means TLS"""
    cert: str = ""
    """our own, for etcd, or for those who come to an embedded store that we serve"""
    key: str = ""
    server_name: str = ""
    """etcd only: the name that its certificate is for; empty for the host of the endpoint"""
    request_timeout: float = 2.0


@dataclass(frozen=True, slots=True)
class LogSpec:
    """Where the output of workers goes."""

    directory: str = ""
    """the folder that holds a folder per run; empty for one below the temporary directory"""
    redirects: tuple[tuple[int | None, int], ...] = ()
    """(local rank or None for all, bits): 1 stdout, 2 stderr go only to files"""
    tee: tuple[tuple[int | None, int], ...] = ()
    """(local rank or None for all, bits): streams shown on the console in spite of redirects"""
    ranks: frozenset[int] | None = None
    """local ranks whose lines are shown on the console; None for all"""
    events: str = ""
    """file for the journal, - for standard output, empty for none"""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What the run is a part of."""

    id: str = ""
    """the name under which the job's roles find each other; empty for a run by itself"""
    roles: tuple[str, ...] = ()
    """the names of all roles of the job"""
    ends: str = "failure"
    """when the end of this run ends the job: always, failure or never"""


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """Everything one agent needs to know."""

    run_id: str
    command: Command
    policy: Policy
    workers: int = 1
    framework: str = "generic"
    role: str = "default"
    node_rank: int | None = None
    local_addr: str = ""
    store: StoreSpec = StoreSpec()
    job: JobSpec = JobSpec()
    logs: LogSpec = LogSpec()
    preload: str = ""
    """what a warm interpreter imports for Python workers: none, auto, module names; empty for the framework's own"""
    signals: tuple[int, ...] = (15, 2, 1, 3)
    """signals that mean goodbye"""
    shutdown_timeout: float = 30.0
    """seconds between SIGTERM and SIGKILL for workers, on every path"""
    hang_timeout: float = 0.0
    """seconds without a heartbeat after which a worker that gives them hangs; 0 for never"""
    notice_grace: float = 30.0
    """seconds that workers have to save before a planned stop, if they asked for notice"""
    notice_signal: int = 0
    """sent to every worker that is given notice and did not ask for a signal itself; 0 for none"""
    checkpoint_timeout: float = 300.0
    """seconds to wait at the end until what workers saved is written"""
    notices: tuple[str, ...] = ()
    """lines to print once at the start, such as options that have no purpose here"""
    strip: frozenset[str] = frozenset()
    """variables that set options: removed from the workers' environment, so that an agent inside does not obey them"""

    @property
    def shared_name(self) -> str:
        """The name that all agents at the store have in common: the job's, or the run's."""
        return self.job.id or self.run_id
