"""A job as files for whoever applies them: manifests without secrets, and how to make those."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

from lattice.jobs import archive
from lattice.jobs.aws.userdata import SERVER_NAME
from lattice.jobs.backends import Say
from lattice.jobs.job import Job
from lattice.jobs.kubernetes import plan, yamltext
from lattice.jobs.kubernetes.names import ROLE, JobNames
from lattice.jobs.kubernetes.order import has_store
from lattice.jobs.kubernetes.plan import Facts
from lattice.jobs.kubernetes.settings import settings
from lattice.jobs.roles import scripts

COMMON = "job.yaml"


def files(job: Job, say: Say) -> dict[str, str]:
    """
    Give the files of a job: one for each role, one for what they share, and what makes its Secret.

    Nothing in them is secret but what the job's own file says: variables that are belong into a Secret (--secrets).
    Who the nodes are is bound to a namespace: the one that the job names, and they say so then, or ``default``.

    :raises UsageError: this job cannot be
    """
    names, said = JobNames(job, f"{job.name}-rendered"), settings(job.place_options)
    sends = job.code.upload and not job.code.source.startswith("s3://")
    with archive.packed(job.code, say, scripts(job)) if sends else contextlib.nullcontext() as packed:
        if packed is not None:
            plan.check_size(packed.size)
        code = b"".join(packed.chunks()) if packed is not None else None
        digest = packed.digest if packed is not None else ""
    facts = Facts(dict.fromkeys(plan.SECRETS, ""), code=code, digest=digest)
    found: dict[str, list[dict[str, Any]]] = {}
    told: dict[str, str] = {}
    for one in [plan.owner(names, facts), *plan.manifests(names, said, facts)]:
        if one["kind"] == "Secret":
            orders = {name: text for name, text in one["data"].items() if name.startswith("order-")}
            told = {name: base64.b64decode(text).decode() for name, text in orders.items()}
            continue
        role = one["metadata"]["labels"].get(ROLE, "") if one["kind"] == "StatefulSet" else ""
        placed = {**one, "metadata": {**one["metadata"], **({"namespace": said.namespace} if said.namespace else {})}}
        found.setdefault(f"{role}.yaml" if role else COMMON, []).append(placed)
    texts = {name: "---\n".join(yamltext.text(one) for one in group) for name, group in found.items()}
    orders_as_files = {f"secret/{name}": f"{text}\n" for name, text in told.items()}
    script = _script(names, said.namespace, list(told), meets=has_store(job))
    return {**texts, **orders_as_files, "secret/make.sh": script}


def _script(names: JobNames, namespace: str, orders: list[str], *, meets: bool) -> str:
    kubectl = f"kubectl --namespace {namespace}" if namespace else "kubectl"
    lines = [
        "#!/bin/sh -e",
        f"# Makes the Secret of {names.job.name}: what its nodes are told, and what protects the etcd where they meet.",
        "# Run it once, with kubectl's options as arguments (such as --context team), before the manifests.",
        'cd "$(dirname "$0")"',
    ]
    given = [f"--from-file={name}" for name in orders]
    if meets:
        lines += [
            "folder=$(mktemp -d)",
            "trap 'rm -rf \"$folder\"' EXIT",
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \\",
            f"  -subj /CN={SERVER_NAME} -addext subjectAltName=DNS:{SERVER_NAME} \\",
            '  -keyout "$folder/key" -out "$folder/certificate"',
            "openssl rand -hex 32 | tr -d '\\n' > \"$folder/password\"",
        ]
        given += [f'"--from-file=$folder/{name}"' for name in plan.SECRETS]
    labels = " ".join(f"{name}={value}" for name, value in names.labels().items())
    lines += [
        f'{kubectl} create secret generic {names.account} {" ".join(given)} "$@"',
        f'{kubectl} label secret {names.account} {labels} "$@"',
    ]
    return "\n".join(lines) + "\n"
