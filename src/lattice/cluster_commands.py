"""The commands that only a cluster has: look into a job's containers, and make what jobs need there."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lattice.errors import UsageError
from lattice.jobs import meaning
from lattice.jobs import options as rows
from lattice.jobs.backends.kubernetes import make
from lattice.jobs.control import Control
from lattice.jobs.desk import home
from lattice.jobs.index import Record
from lattice.jobs.jobfile import read
from lattice.jobs.kubernetes import describing, executing, install, rendering, yamltext
from lattice.jobs.kubernetes.client import Client, KubernetesFailed
from lattice.jobs.kubernetes.pods import NODE
from lattice.jobs.roles import role_of, seats_of
from lattice.jobs.telling import Teller
from lattice.options import values
from lattice.options.help import plain_rows
from lattice.options.option import Option
from lattice.options.parsing import Dialect, HelpAsked, Parsed, parse

HERE = rows.HERE
INDEX = Option("index", values.count, "0", "which of the role's nodes", "a number from 0", HERE, "N")
OUT = Option("output", values.text, "", "the folder that gets the manifests", "a folder", HERE, "DIR", short="o")
GPU = Option("gpu", values.switch, "0", "also what makes NVIDIA's GPUs known to the cluster", "1 or 0", HERE)
FROM_ENV = Option(
    "from_env",
    values.switch,
    "0",
    "take the values of this process's variables; those of AWS unless others are named",
    "1 or 0",
    HERE,
)
CLUSTER = (rows.NAMESPACE, rows.CONTEXT, rows.KUBECONFIG)
OF_AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_DEFAULT_REGION")
KEPT = "lattice/secret"
"""the label of Secrets that ``lattice secret`` made"""

USAGES = {
    "exec": """\
usage: lattice exec NAME [options] -- COMMAND [ARGS...]

Runs a program in a container of a job on Kubernetes, with this terminal if
there is one, and exits with its code. The container is that of the agent
(node), in the first node of the primary role, unless options say otherwise.
""",
    "describe": """\
usage: lattice describe NAME

Tells all that a job on Kubernetes is made of, how each part stands, and what
the cluster says about pods that do not run. Secrets are named, not shown.
""",
    "render": """\
usage: lattice render --output DIR --file JOB.yaml [options]
       lattice render --output DIR --on kubernetes [options] SCRIPT [-- ARGS]

Writes what a submission to Kubernetes would make as files, for kubectl apply
or GitOps: sh DIR/secret/make.sh, then kubectl apply -f DIR. No secret is in
them; make.sh makes it. Options are those of lattice submit; say --namespace
unless it is default.
""",
    "secret": """\
usage: lattice secret create NAME --from_env [VARIABLE...]
       lattice secret list
       lattice secret delete NAME

Keeps variables of this shell in the cluster, as a Secret; nodes of a job on
Kubernetes get them with --secrets NAME. Values are never shown. Without names
it is the keys of AWS. create again replaces what was there.
""",
    "install": """\
usage: lattice install --image IMAGE [options]
       lattice install --gpu [options]

Makes an etcd in the cluster where all jobs meet from then on, with TLS, a
password and a volume, in the namespace lattice; with --gpu also, or only, what
makes NVIDIA's GPUs known. What is there stays as it is.
""",
}


def cluster_command(name: str, words: Sequence[str]) -> int:
    """
    Run one of the commands about a cluster.

    :param name: of the command, one of :data:`COMMANDS`
    :param words: what follows it
    :return: the exit code
    """
    dialect, command = COMMANDS[name]
    after: list[str] = []
    if name == "exec" and "--" in words:
        cut = list(words).index("--")
        words, after = words[:cut], list(words[cut + 1 :])
    try:
        parsed = parse(words, {}, dialect)
    except HelpAsked:
        print(f"{USAGES[name]}\noptions:\n{plain_rows(dialect)}", end="", flush=True)
        return 0
    return command(parsed, after)


def _exec(parsed: Parsed, argv: Sequence[str]) -> int:
    record = _record(parsed)
    if not argv:
        raise UsageError(f"lattice exec takes a program after --: lattice exec {record.job.name} -- bash")
    role = role_of(record.job, parsed[rows.ROLE]) if parsed.has(rows.ROLE) else None
    known = seats_of(record.job, role or role_of(record.job, record.job.roles[0].name if record.job.roles else ""))
    if parsed[INDEX] >= len(known):
        raise UsageError(f"--index is {parsed[INDEX]}; accepted: 0 to {len(known) - 1}")
    pod = record.hosts[known[parsed[INDEX]].index]
    here = make().open(record)
    stdin = not sys.stdin.closed
    tty = sys.stdin.isatty() and sys.stdout.isatty()
    container = parsed[rows.CONTAINER] or NODE
    session = here.client.execute(here.namespace, pod, container, argv, stdin=stdin, tty=tty)
    return executing.attach(session, stdin=stdin, tty=tty)


def _describe(parsed: Parsed, _: Sequence[str]) -> int:
    record = _record(parsed)
    here = make().open(record)
    for line in describing.lines(here.names, here.namespace, here.seen(), here.others()):
        print(line, flush=True)
    return 0


def _render(parsed: Parsed, _: Sequence[str]) -> int:
    folder = parsed[OUT]
    if not folder:
        raise UsageError("lattice render needs --output: the folder that gets the manifests")
    file = read(parsed[rows.FILE_]) if parsed[rows.FILE_] else None
    said = {name: given for name, given in parsed.given.items() if name != OUT.name}
    job = meaning.job(Parsed(rows.SUBMIT, said, parsed.entry), file)
    if job.place != "kubernetes":
        raise UsageError(f"the job is for {job.place}: only one for kubernetes has manifests (--on kubernetes)")
    for name, text in rendering.files(job, _say).items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path, flush=True)
    return 0


def _secret(parsed: Parsed, _: Sequence[str]) -> int:
    client = Client(parsed[rows.KUBECONFIG], parsed[rows.CONTEXT])
    namespace = parsed[rows.NAMESPACE] or client.namespace
    match parsed.entry:
        case ("create", name, *variables):
            if not parsed[FROM_ENV]:
                raise UsageError(f"say where the values come from: lattice secret create {name} --from_env")
            _create_secret(client, namespace, name, variables)
        case ("list",):
            for one in client.list("Secret", namespace, KEPT):
                print(f"{one['metadata']['name']}: {', '.join(sorted(one.get('data') or ()))}", flush=True)
        case ("delete", name):
            found = client.get("Secret", namespace, name)
            if found is None or KEPT not in found["metadata"].get("labels", {}):
                raise UsageError(f"there is no Secret {name} in namespace {namespace} that lattice secret made")
            client.delete("Secret", namespace, name)
            _say(f"Secret {name} is deleted")
        case _:
            raise UsageError("lattice secret takes create NAME, list, or delete NAME; see lattice secret --help")
    return 0


def _create_secret(client: Client, namespace: str, name: str, variables: Sequence[str]) -> None:
    names = tuple(variables) or tuple(one for one in OF_AWS if one in os.environ)
    missing = [one for one in names if one not in os.environ]
    if missing or not names:
        raise UsageError(f"not set here: {', '.join(missing or OF_AWS[:2])}")
    labels = {"app.kubernetes.io/managed-by": "lattice", KEPT: "1"}
    data = {one: os.environ[one] for one in names}
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": labels},
        "type": "Opaque",
        "stringData": data,
    }
    _ensure(client, namespace, manifest)
    _say(f"Secret {name} in namespace {namespace} has {', '.join(names)}: lattice submit --secrets {name} ...")


def _install(parsed: Parsed, _: Sequence[str]) -> int:
    from lattice.jobs.aws.secrets import make_secrets

    if parsed.has(rows.ON) and parsed[rows.ON] != "kubernetes":
        raise UsageError("lattice install is for --on kubernetes; other places need nothing")
    if not parsed[rows.IMAGE] and not parsed[GPU]:
        raise UsageError("lattice install needs --image: one with Lattice and etcd; lattice image build makes one")
    hidden = {"certificate": "", "key": "", "password": ""}
    policy = parsed[rows.IMAGE_PULL_POLICY] if parsed.has(rows.IMAGE_PULL_POLICY) else ""
    dry = parsed[rows.DRY_RUN]
    made: list[dict[str, Any]] = []
    if parsed[rows.IMAGE]:
        made += install.shared_etcd(parsed[rows.IMAGE], hidden if dry else make_secrets(), policy)
    made += install.device_plugin() if parsed[GPU] else []
    if dry:
        print("---\n".join(yamltext.text(one) for one in made), end="", flush=True)
        return 0
    client = Client(parsed[rows.KUBECONFIG], parsed[rows.CONTEXT])
    for manifest in made:
        namespace = manifest["metadata"].get("namespace", "")
        there = client.get(manifest["kind"], namespace, manifest["metadata"]["name"])
        _say(f"{manifest['kind']} {manifest['metadata']['name']}{' is there' if there else ''}")
        if there is None:  # another password would lock out the jobs that run
            client.create(namespace, manifest)
    return 0


def _ensure(client: Client, namespace: str, manifest: dict[str, Any]) -> None:
    try:
        client.create(namespace, manifest)
    except KubernetesFailed as error:
        if error.status != 409:
            raise
        name = manifest["metadata"]["name"]
        found = client.get(manifest["kind"], namespace, name)
        if found is None or KEPT not in found["metadata"].get("labels", {}):
            raise UsageError(f"there is a Secret {name} already that lattice secret did not make") from None
        client.delete(manifest["kind"], namespace, name)
        client.create(namespace, manifest)


def _record(parsed: Parsed) -> Record:
    if len(parsed.entry) != 1:
        raise UsageError(f"{parsed.dialect.command} takes the name of one job")
    record = Control(home(os.environ), _say).record(parsed.entry[0])
    if record.job.place != "kubernetes":
        raise UsageError(f"{record.job.name} runs {record.job.place}: {parsed.dialect.command} is for --on kubernetes")
    return record


_say = Teller(sys.stderr)


def _dialect(command: str, *options: Option[object]) -> Dialect:
    return Dialect(f"lattice {command}", options, environment=False, anywhere=True)


COMMANDS: dict[str, tuple[Dialect, Callable[[Parsed, Sequence[str]], int]]] = {
    "exec": (_dialect("exec", rows.ROLE, INDEX, rows.CONTAINER), _exec),
    "describe": (_dialect("describe"), _describe),
    "render": (Dialect("lattice render", (*rows.SUBMIT.options, OUT), environment=False), _render),
    "secret": (_dialect("secret", FROM_ENV, *CLUSTER), _secret),
    "install": (
        _dialect("install", rows.ON, rows.IMAGE, rows.IMAGE_PULL_POLICY, GPU, *CLUSTER[1:], rows.DRY_RUN),
        _install,
    ),
}
