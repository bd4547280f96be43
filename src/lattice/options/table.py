"""Every option of ``lattice run`` and ``lattice torchrun``, one row each."""

from __future__ import annotations

from lattice.core import addresses, roles
from lattice.environments import FRAMEWORKS
from lattice.options import values
from lattice.options.option import Option

BACKENDS = ("etcd", "memory", "embedded", "c10d", "static", "etcd-v2")

NODES, ROLES, RENDEZVOUS, WORKERS, OUTPUT, ENTRY, IGNORED = GROUPS = (
    "Nodes and workers",
    "Roles of a job",
    "Rendezvous",
    "Starting and stopping workers",
    "Output",
    "Entry point",
    "Options of torchrun that are accepted and have no purpose here",
)

NNODES = Option(
    "nnodes",
    values.node_range,
    "1",
    "number of nodes, or a range: the run starts at MIN and grows to MAX; needed with more than one node",
    "N or MIN:MAX with 1 <= MIN <= MAX, such as 4 or 2:8",
    NODES,
    "N|MIN:MAX",
    aliases=("nnode",),
)
FRAMEWORK = Option(
    "framework",
    values.one_of(FRAMEWORKS),
    "generic",
    f"whose variables the workers get: {', '.join(FRAMEWORKS)}; generic adds none but those of Lattice",
    f"one of {', '.join(FRAMEWORKS)}",
    NODES,
    "NAME",
    torchrun=False,
)
NPROC_PER_NODE = Option(
    "nproc_per_node",
    values.workers,
    "1",
    "number of workers on this node; gpu and cpu count the devices, auto takes GPUs if there are any, else CPUs",
    "a number from 1, or one of auto, cpu, gpu",
    NODES,
    "N|auto|cpu|gpu",
)
NODE_RANK = Option(
    "node_rank",
    values.node_rank,
    "auto",
    "the group rank that this node asks for; with an embedded store, rank 0 serves it unless is_host says who does",
    "a number from 0, or auto",
    NODES,
    "RANK",
)
ROLE = Option("role", addresses.word, "default", "a name for the workers of this run", "one word", NODES, "NAME")
LOCAL_ADDR = Option(
    "local_addr",
    addresses.host,
    "",
    "the address by which other nodes reach this one; without it the one that faces the store",
    "a host name or address",
    NODES,
    "ADDRESS",
)

JOB_ID = Option(
    "job_id",
    values.job_id,
    "",
    "the job that this run is a part of, the same for all its roles, which find each other by it at one store",
    "up to 200 characters without / and white space",
    ROLES,
    "ID",
    torchrun=False,
)
JOB_ROLES = Option(
    "job_roles",
    roles.role_names,
    "",
    "names of all roles of the job, role among them; without it role alone",
    "names of letters, digits and -, separated by commas, all different whatever the case; file is none",
    ROLES,
    "NAME,...",
    torchrun=False,
)
ENDS_JOB = Option(
    "ends_job",
    values.one_of(roles.ENDS),
    "failure",
    "whether the job ends, for all its roles, when this run ends: always, only if it failed, or never",
    f"one of {', '.join(roles.ENDS)}",
    ROLES,
    "|".join(roles.ENDS),
    torchrun=False,
)

RDZV_BACKEND = Option(
    "rdzv_backend",
    values.one_of(BACKENDS),
    "etcd",
    "where the nodes meet: etcd; memory, in this process, for one node; embedded, a store that node 0 serves itself. "
    "c10d and static are other names for embedded, etcd-v2 for etcd",
    f"one of {', '.join(BACKENDS)}",
    RENDEZVOUS,
    "NAME",
)
RDZV_ENDPOINT = Option(
    "rdzv_endpoint",
    values.endpoints,
    "",
    "address of the store, several for an etcd cluster; goes before rdzv_client_service_host. "
    "The port is 2379 for etcd and 29500 for embedded unless given. "
    "@FILE: etcd's addresses are in that file, which is read at every attempt to connect",
    "HOST[:PORT], several separated by commas, IPv6 as [::1]:2379, or @FILE",
    RENDEZVOUS,
    "HOST[:PORT],...",
)
RDZV_CLIENT_SERVICE_HOST = Option(
    "rdzv_client_service_host",
    addresses.host,
    "lattice-rdzv-client.lattice",
    "host of etcd, where rdzv_endpoint is not given",
    "a host name or address without a port",
    RENDEZVOUS,
    "HOST",
    torchrun=False,
)
RDZV_CLIENT_SERVICE_PORT = Option(
    "rdzv_client_service_port",
    values.whole(1, 65535),
    "2379",
    "port of etcd, where rdzv_endpoint is not given",
    "a port from 1 to 65535",
    RENDEZVOUS,
    "PORT",
    torchrun=False,
)
RDZV_ID = Option(
    "rdzv_id",
    values.run_id,
    "",
    "name of this run, the same on every node; needed with more than one node, made up for one",
    "up to 200 characters without / and white space",
    RENDEZVOUS,
    "ID",
)
RDZV_CONF = Option(
    "rdzv_conf",
    values.pairs,
    "",
    "time limits and credentials; the keys are listed below",
    "KEY=VALUE,KEY=VALUE",
    RENDEZVOUS,
    "KEY=VALUE,...",
)
RDZV_PASSWORD = Option(
    "rdzv_password",
    values.text,
    "",
    "password of the store: of rdzv_conf's user with etcd, shared by all nodes with an embedded store",
    "any text",
    RENDEZVOUS,
    torchrun=False,
    flag=False,
    secret=True,
)
STANDALONE = Option(
    "standalone",
    values.switch,
    "0",
    "this node alone, whatever the other rendezvous options say",
    "1 or 0",
    RENDEZVOUS,
)
MASTER_ADDR = Option(
    "master_addr",
    addresses.host,
    "",
    "host of node 0, another way to write the endpoint of an embedded store",
    "a host name or address without a port",
    RENDEZVOUS,
    "HOST",
)
MASTER_PORT = Option(
    "master_port",
    addresses.port,
    "29500",
    "port on node 0 that goes with master_addr",
    "a port from 0 to 65535",
    RENDEZVOUS,
    "PORT",
)

MAX_RESTARTS = Option(
    "max_restarts",
    values.count,
    "0",
    "worker failures that the whole job restarts after; nodes that come or go do not count",
    "a number from 0",
    WORKERS,
    "N",
)
SHUTDOWN_TIMEOUT = Option(
    "shutdown_timeout",
    values.seconds(),
    "30",
    "seconds that workers have to end after SIGTERM before they are killed",
    "seconds from 0",
    WORKERS,
    "SECONDS",
    variables=("TORCH_ELASTIC_SHUTDOWN_TIMEOUT",),
)
HANG_TIMEOUT = Option(
    "hang_timeout",
    values.seconds(),
    "0",
    "seconds without lattice.heartbeat() after which a worker that calls it hangs: all stacks are written to the logs "
    "and the round is restarted; 0 for never",
    "seconds from 0",
    WORKERS,
    "SECONDS",
    torchrun=False,
)
NOTICE_GRACE = Option(
    "notice_grace",
    values.seconds(),
    "30",
    "seconds that workers that asked for it (lattice.on_notice) have to save before a planned stop",
    "seconds from 0",
    WORKERS,
    "SECONDS",
    torchrun=False,
)
NOTICE_SIGNAL = Option(
    "notice_signal",
    values.one_signal,
    "",
    "signal that gives notice to workers that did not ask for one themselves; none without it",
    "the name of a signal, such as SIGUSR1",
    WORKERS,
    "SIGNAL",
    torchrun=False,
)
CHECKPOINT_TIMEOUT = Option(
    "checkpoint_timeout",
    values.seconds(),
    "300",
    "seconds to wait at the end until what workers saved with lattice.checkpoint is written",
    "seconds from 0",
    WORKERS,
    "SECONDS",
    torchrun=False,
)
SIGNALS_TO_HANDLE = Option(
    "signals_to_handle",
    values.signals,
    "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
    "signals that make this node say goodbye",
    "names of signals separated by commas; not SIGKILL, SIGSTOP, SIGCHLD",
    WORKERS,
    "SIGNAL,...",
)

LOG_DIR = Option(
    "log_dir",
    values.text,
    "",
    "folder for the workers' output, one folder per run; without it one below the temporary directory",
    "a folder",
    OUTPUT,
    "FOLDER",
)
STREAMS = "0 to 3 for all workers, or RANK:0-3,RANK:0-3 for some"
REDIRECTS = Option(
    "redirects",
    values.streams,
    "0",
    "streams that go to files only: 1 stdout, 2 stderr, 3 both; for all workers, or by local rank",
    STREAMS,
    OUTPUT,
    "BITS|RANK:BITS,...",
    short="r",
)
TEE = Option(
    "tee",
    values.streams,
    "0",
    "streams that are shown here in spite of redirects",
    STREAMS,
    OUTPUT,
    "BITS|RANK:BITS,...",
    short="t",
)
LOCAL_RANKS_FILTER = Option(
    "local_ranks_filter",
    values.ranks,
    "",
    "local ranks whose lines are shown here; all without it, files are not affected",
    "numbers separated by commas, such as 0,1,2",
    OUTPUT,
    "RANK,...",
)
EVENTS = Option(
    "events",
    values.text,
    "",
    "write every state change with its reason and duration, as JSON lines, to a file or to standard output (-)",
    "a file, or -",
    OUTPUT,
    "FILE|-",
    torchrun=False,
)

PRELOAD = Option(
    "preload",
    values.modules,
    "",
    "what one interpreter per node imports, once, so that workers are forked from it in milliseconds: modules beside "
    "the framework's own, auto for those that the script imports, or none",
    "module names separated by commas, auto, or none",
    ENTRY,
    "MODULES|auto|none",
    torchrun=False,
)
MODULE = Option(
    "module",
    values.switch,
    "0",
    "the entry point is a Python module, as with python -m",
    "1 or 0",
    ENTRY,
    short="m",
)
NO_PYTHON = Option(
    "no_python",
    values.switch,
    "0",
    "execute the entry point as it is, whatever it looks like",
    "1 or 0",
    ENTRY,
)
ENTRYPOINT = Option(
    "entrypoint",
    values.text,
    "",
    "the entry point where the command line has none, quoted as in a shell",
    "words quoted as in a shell",
    ENTRY,
    torchrun=False,
    flag=False,
)
ENTRYPOINT_ARGS = Option(
    "entrypoint_args",
    values.text,
    "",
    "arguments that follow LATTICE_ENTRYPOINT, quoted as in a shell",
    "words quoted as in a shell",
    ENTRY,
    torchrun=False,
    flag=False,
)


def _without_purpose(name: str, notice: str, metavar: str = "VALUE") -> Option[str]:
    return Option(name, values.text, "", notice, "anything", IGNORED, metavar, notice=notice)


MONITOR_INTERVAL = _without_purpose("monitor_interval", "the end of a worker is seen at once, without polling")
START_METHOD = _without_purpose("start_method", "workers are programs, not children of a Python process")
RUN_PATH = _without_purpose("run_path", "a script is run by its own interpreter", "")
NUMA_BINDING = _without_purpose("numa_binding", "workers are not bound to CPUs; use numactl as the entry point")
VIRTUAL_LOCAL_RANK = _without_purpose("virtual_local_rank", "LOCAL_RANK is always the worker's own", "")
EVENT_LOG_HANDLER = _without_purpose("event_log_handler", "use events for the journal of the agent")
LOGS_SPECS = _without_purpose("logs_specs", "use log_dir, redirects and tee")
DUPLICATE_STDOUT_FILTERS = _without_purpose("duplicate_stdout_filters", "log_dir has every line of every worker")
DUPLICATE_STDERR_FILTERS = _without_purpose("duplicate_stderr_filters", "log_dir has every line of every worker")
USE_AGENT_STORE = _without_purpose("use_agent_store", "the agent hosts no store for process groups")

OPTIONS: tuple[Option[object], ...] = (
    NNODES,
    NPROC_PER_NODE,
    FRAMEWORK,
    ROLE,
    NODE_RANK,
    LOCAL_ADDR,
    JOB_ID,
    JOB_ROLES,
    ENDS_JOB,
    RDZV_ID,
    RDZV_ENDPOINT,
    RDZV_BACKEND,
    RDZV_CLIENT_SERVICE_HOST,
    RDZV_CLIENT_SERVICE_PORT,
    RDZV_CONF,
    RDZV_PASSWORD,
    STANDALONE,
    MASTER_ADDR,
    MASTER_PORT,
    MAX_RESTARTS,
    SHUTDOWN_TIMEOUT,
    HANG_TIMEOUT,
    NOTICE_GRACE,
    NOTICE_SIGNAL,
    CHECKPOINT_TIMEOUT,
    SIGNALS_TO_HANDLE,
    LOG_DIR,
    REDIRECTS,
    TEE,
    LOCAL_RANKS_FILTER,
    EVENTS,
    PRELOAD,
    MODULE,
    NO_PYTHON,
    ENTRYPOINT,
    ENTRYPOINT_ARGS,
    MONITOR_INTERVAL,
    START_METHOD,
    RUN_PATH,
    NUMA_BINDING,
    VIRTUAL_LOCAL_RANK,
    EVENT_LOG_HANDLER,
    LOGS_SPECS,
    DUPLICATE_STDOUT_FILTERS,
    DUPLICATE_STDERR_FILTERS,
    USE_AGENT_STORE,
)


def option_variables() -> frozenset[str]:
    """Name every variable that sets an option: a worker must not inherit them, or an agent inside would obey."""
    own = {option.variable for option in OPTIONS}
    return frozenset(own.union(*(option.torchrun_variables for option in OPTIONS)))
