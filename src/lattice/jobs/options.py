"""Every option of the job commands, one row each; those of ``lattice run`` that a job can have are its own rows."""

from __future__ import annotations

from lattice.jobs.backends import PLACES
from lattice.options import values
from lattice.options.option import Option
from lattice.options.parsing import Dialect
from lattice.options.table import (
    CHECKPOINT_TIMEOUT,
    FRAMEWORK,
    HANG_TIMEOUT,
    MAX_RESTARTS,
    NOTICE_GRACE,
    NOTICE_SIGNAL,
    NPROC_PER_NODE,
    PRELOAD,
    RDZV_BACKEND,
    RDZV_CONF,
    RDZV_ENDPOINT,
    SHUTDOWN_TIMEOUT,
)

JOB, HERE, THERE = "The job", "Submitting", "Where it runs"
FILE = "a file"

NAME = Option("name", values.text, "", "name of the job, by which all other commands know it", "a name", JOB, "NAME")
SIZE = Option(
    "size",
    values.node_range,
    "1",
    "number of nodes, or a range: MAX are started, and the job goes on while MIN are there",
    "N or MIN:MAX with 1 <= MIN <= MAX, such as 4 or 2:8",
    JOB,
    "N|MIN:MAX",
)
ENV = Option(
    "env",
    values.pairs,
    "",
    "variables of the workers; values with a comma go into a job file",
    "NAME=VALUE,NAME=VALUE",
    JOB,
    "NAME=VALUE,...",
)
FILE_ = Option(
    "file",
    values.text,
    "",
    "job file (YAML) that holds any of these options by name, and script, folder, args; flags win",
    FILE,
    JOB,
    "FILE",
    short="f",
)
NO_UPLOAD = Option(
    "no_upload",
    values.switch,
    "0",
    "the script, or folder and script, are on the nodes already: paths there",
    "1 or 0",
    JOB,
)
ON = Option(
    "on",
    values.one_of(PLACES),
    "local",
    "where the job runs: local, on this machine; ssh, on hosts that you hold; slurm, where sbatch puts it; "
    "aws, on instances made for it; kubernetes, in pods of a cluster",
    f"one of {', '.join(PLACES)}",
    THERE,
    "PLACE",
)
HOSTS = Option(
    "hosts",
    values.text,
    "",
    "ssh: the hosts, as ssh knows them; one that is named twice has two nodes. The size is their number unless given",
    "HOST,USER@HOST:PORT,...",
    THERE,
    "HOST,...",
)
SSH_CONFIG_FILE = Option(
    "ssh_config_file", values.text, "", "ssh: a configuration in place of the user's own", FILE, THERE, "FILE"
)
PYTHON = Option(
    "python",
    values.text,
    "",
    "ssh: the Python that has Lattice on the hosts; without it the path of this one",
    "a path",
    THERE,
    "PATH",
)
SLURM_OPTIONS = Option(
    "slurm_options",
    values.text,
    "",
    "slurm: further options of sbatch, such as '--partition=gpu --gpus-per-node=8 --time=8:00:00'",
    "options of sbatch",
    THERE,
    "OPTIONS",
    takes_flags=True,
)
SPECS_FILE = Option(
    "specs_file", values.text, "", "aws: which instances the job gets (JSON); see docs/aws.md", FILE, THERE, "FILE"
)
INSTANCE_TYPE = Option(
    "instance_type",
    values.text,
    "",
    "aws: another type for the workers than the specs file has",
    "a type",
    THERE,
    "TYPE",
)
REGION = Option("region", values.text, "", "aws: region, if the specs file names none", "a region", THERE, "REGION")
IMAGE = Option("image", values.text, "", "kubernetes: the image of the nodes", "an image", THERE, "IMAGE")
CPU = Option(
    "cpu",
    values.quantity("m"),
    "",
    "kubernetes: processors that each node gets",
    "a number, or thousandths such as 500m",
    THERE,
    "N",
)
MEMORY = Option(
    "memory",
    values.quantity("Ki", "Mi", "Gi", "Ti", "k", "M", "G", "T"),
    "",
    "kubernetes: memory that each node gets",
    "an amount such as 512Mi or 8Gi",
    THERE,
    "AMOUNT",
)
GPUS = Option(
    "gpus", values.count, "0", "kubernetes: GPUs (nvidia.com/gpu) that each node gets", "a number", THERE, "N"
)
NAMESPACE = Option(
    "namespace",
    values.text,
    "",
    "kubernetes: the namespace of the job; without it that of the context",
    "a namespace",
    THERE,
    "NAMESPACE",
)
CONTEXT = Option(
    "context",
    values.text,
    "",
    "kubernetes: a context of the kubeconfig, if not its current one",
    "a name",
    THERE,
    "NAME",
)
KUBECONFIG = Option(
    "kubeconfig",
    values.text,
    "",
    "kubernetes: the file that leads to the cluster; without it KUBECONFIG, ~/.kube/config, or the pod's own account",
    FILE,
    THERE,
    "FILE",
)
SERVICE_ACCOUNT = Option(
    "service_account",
    values.text,
    "",
    "kubernetes: the account of the nodes, if not one made for the job; such as one with a role of AWS",
    "a name",
    THERE,
    "NAME",
)
SECRETS = Option(
    "secrets",
    values.text,
    "",
    "kubernetes: Secrets whose keys are variables of the nodes; lattice secret create makes one",
    "NAME,...",
    THERE,
    "NAME,...",
)
IMAGE_PULL_SECRET = Option(
    "image_pull_secret", values.text, "", "kubernetes: the Secret that images are pulled with", "a name", THERE, "NAME"
)
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
IMAGE_PULL_POLICY = Option(
    "image_pull_policy",
    values.one_of(PULL_POLICIES),
    "",
    "kubernetes: when images are pulled; without it Always for those tagged latest, otherwise IfNotPresent",
    f"one of {', '.join(PULL_POLICIES)}",
    THERE,
    "POLICY",
)
KEEP_FOR = Option(
    "keep_for",
    values.seconds(),
    "3600",
    "kubernetes: seconds that the pods of a job that has ended stay, with all of its logs and what they occupy",
    "seconds from 0",
    THERE,
    "SECONDS",
)
YES = Option("yes", values.switch, "0", "do not ask whether it may cost what it will cost", "1 or 0", HERE, short="y")
DRY_RUN = Option("dry_run", values.switch, "0", "print what would be made, and make nothing", "1 or 0", HERE)
WAIT = Option("wait", values.switch, "0", "show the logs until the job ends, and exit with its code", "1 or 0", HERE)

RUN_OPTIONS: tuple[Option[object], ...] = (
    NPROC_PER_NODE,
    FRAMEWORK,
    MAX_RESTARTS,
    PRELOAD,
    SHUTDOWN_TIMEOUT,
    HANG_TIMEOUT,
    NOTICE_GRACE,
    NOTICE_SIGNAL,
    CHECKPOINT_TIMEOUT,
    RDZV_BACKEND,
    RDZV_ENDPOINT,
    RDZV_CONF,
)
"""options of ``lattice run`` that go to the agents as they are"""
RESOURCES: tuple[Option[object], ...] = (IMAGE, CPU, MEMORY, GPUS)
"""what a place with containers gives to each node"""
OF_ROLES: tuple[Option[object], ...] = (*RESOURCES, INSTANCE_TYPE)
"""what each role may want of its own from a place"""
PLACE_OPTIONS: tuple[Option[object], ...] = (
    HOSTS,
    SSH_CONFIG_FILE,
    PYTHON,
    SLURM_OPTIONS,
    SPECS_FILE,
    INSTANCE_TYPE,
    REGION,
    *RESOURCES,
    NAMESPACE,
    CONTEXT,
    KUBECONFIG,
    SERVICE_ACCOUNT,
    SECRETS,
    IMAGE_PULL_SECRET,
    IMAGE_PULL_POLICY,
    KEEP_FOR,
)
"""options that only some places have"""

JSON = Option("json", values.switch, "0", "print JSON", "1 or 0", HERE)
FOLLOW = Option("follow", values.switch, "0", "go on until the job ends", "1 or 0", HERE, short="f")
RANK = Option("rank", values.count, "", "only what this worker wrote, as it wrote it", "a number from 0", HERE, "RANK")
ROLE = Option("role", values.text, "", "only this role's nodes, if the job has roles", "a role", HERE, "ROLE")
CONTAINER = Option(
    "container",
    values.text,
    "",
    "kubernetes: a sidecar of the nodes, in place of the workers",
    "a sidecar's name",
    HERE,
    "NAME",
    short="c",
)
GRACE = Option(
    "grace",
    values.seconds(),
    "60",
    "seconds that the nodes have to end, their workers' shutdown_timeout included, before they are killed",
    "seconds from 0",
    HERE,
    "SECONDS",
)
TIMEOUT = Option(
    "timeout", values.seconds(), "", "seconds to wait at most; then exit with 124", "seconds from 0", HERE, "SECONDS"
)
FORCE = Option(
    "force",
    values.switch,
    "0",
    "forget it although some of it, on hosts that are gone, cannot be deleted",
    "1 or 0",
    HERE,
)
WATCH = Option(
    "watch", values.switch, "0", "show it again and again until Ctrl-C, or the end", "1 or 0", HERE, short="w"
)


SUBMIT = Dialect(
    "lattice submit",
    (NAME, SIZE, ENV, FILE_, NO_UPLOAD, *RUN_OPTIONS, ON, *PLACE_OPTIONS, DRY_RUN, WAIT, YES),
    environment=False,
)


def _dialect(command: str, *options: Option[object]) -> Dialect:
    return Dialect(f"lattice {command}", options, environment=False, anywhere=True)


STATUS = _dialect("status", JSON, WATCH)
LOGS = _dialect("logs", FOLLOW, RANK, ROLE, CONTAINER)
SCALE = _dialect("scale", ROLE)
WAIT_FOR = _dialect("wait", TIMEOUT)
KILL = _dialect("kill", GRACE)
LIST = _dialect("list", JSON)
HOSTS_OF = _dialect("hosts", JSON)
FORGET = _dialect("forget", FORCE)
