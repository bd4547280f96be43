"""
What a job on Kubernetes is made of, as manifests in the order in which they are made. Pure.

Everything carries the labels of the submission and belongs to one object, the ConfigMap of the job: it is made first,
and all else goes when it goes. Only versions of the API that Kubernetes has had since 1.19, and has still, are used.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lattice.errors import UsageError
from lattice.jobs.aws.upload import destination
from lattice.jobs.aws.userdata import CodeAt
from lattice.jobs.job import Code, Role
from lattice.jobs.kubernetes import order, pods
from lattice.jobs.kubernetes.names import INDEX, RDZV, JobNames, check
from lattice.jobs.kubernetes.settings import Settings
from lattice.jobs.roles import roles, seats, seats_of

Json = dict[str, Any]

MOST_CODE = 900_000
"""bytes of an archive that a ConfigMap can hold"""
SECRETS = ("certificate", "key", "password")
RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class Facts:
    """What a submission knows besides its job."""

    secrets: Mapping[str, str]
    """of etcd, by their names in :data:`SECRETS`; that of all jobs, if it is shared"""
    code: bytes | None = None
    """the archive; None if there is none to send"""
    digest: str = ""
    """of the archive"""
    owner: str = ""
    """uid of the job's ConfigMap; empty if nothing belongs to it"""
    shared: bool = False
    """whether the nodes meet at the etcd that the cluster has for all"""
    since: float = 0.0
    namespace: str = ""


def owner(names: JobNames, facts: Facts) -> Json:
    """Give the object that all others belong to: it says what the job is."""
    said = {"name": names.job.name, "submission": names.submission, "submitted": facts.since}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": names.owner, "labels": names.labels()},
        "data": {"job.json": json.dumps(said, sort_keys=True)},
    }


def manifests(names: JobNames, settings: Settings, facts: Facts) -> list[Json]:
    """
    Give all that a job is made of but the owner.

    :param names: of the submission's objects
    :param settings: what the user says about the cluster
    :param facts: what else it takes
    :raises UsageError: this job cannot be
    """
    check(names.job)
    job = names.job
    found = [
        *_account(names, settings, facts),
        _policy(names),
        _secret(names, settings, facts),
        *([_code(names, facts)] if facts.code is not None else []),
        _service(names, names.service, names.labels()),
        *(_shelf(names, seat.role, seat.index) for seat in seats(job)),
    ]
    if order.own_store(job, shared=facts.shared):
        found += [
            _service(names, names.rdzv, names.labels(RDZV), order.PORT),
            _set(names, names.rdzv, RDZV, 1, pods.of_etcd(names, settings)),
        ]
    for role in roles(job):
        nodes = role.size.maximum
        found.append(_set(names, names.set_of(role), role.name, nodes, pods.of_role(names, role, settings)))
    return [_owned(manifest, names, facts.owner) for manifest in found]


def code_at(code: Code, digest: str) -> CodeAt:
    """Tell the nodes where the code is."""
    return destination(code, "", digest)


def check_size(size: int) -> None:
    """
    See that code can go along.

    :param size: bytes of its archive
    :raises UsageError: it is too large
    """
    if size > MOST_CODE:
        raise UsageError(
            f"the code is {size:,} bytes as an archive, and the cluster takes at most {MOST_CODE:,} in a ConfigMap. "
            "Put what is large into .latticeignore, or the code into the image (lattice image build, --no_upload), "
            "or into S3 (petctl upload, s3://BUCKET/CODE.tar.gz)"
        )


def _owned(manifest: Json, names: JobNames, uid: str) -> Json:
    if not uid:
        return manifest
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": names.owner, "uid": uid}
    metadata = {**manifest["metadata"], "ownerReferences": [{**reference, "blockOwnerDeletion": False}]}
    return {**manifest, "metadata": metadata}


def _account(names: JobNames, settings: Settings, facts: Facts) -> list[Json]:
    """Give who the nodes are, and all that they may do: leave word of themselves, and end their own job."""
    sets = [*names.sets(), *([names.rdzv] if order.own_store(names.job, shared=facts.shared) else [])]
    shelves = [names.shelf(seat.index) for seat in seats(names.job)]
    rules = [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": shelves, "verbs": ["get", "patch"]},
        {"apiGroups": ["apps"], "resources": ["statefulsets/scale"], "resourceNames": sets, "verbs": ["patch"]},
    ]
    own = not settings.service_account
    named = settings.service_account or names.account
    subjects = [
        {"kind": "ServiceAccount", "name": named, "namespace": facts.namespace or settings.namespace or "default"}
    ]
    role = {"apiGroup": RBAC, "kind": "Role", "name": names.account}
    return [
        *([_object(names, "v1", "ServiceAccount", names.account, automountServiceAccountToken=False)] if own else []),
        _object(names, f"{RBAC}/v1", "Role", names.account, rules=rules),
        _object(names, f"{RBAC}/v1", "RoleBinding", names.account, roleRef=role, subjects=subjects),
    ]


def _policy(names: JobNames) -> Json:
    """Admit nobody but the job's own pods."""
    own = {"matchLabels": names.labels()}
    spec = {"podSelector": own, "policyTypes": ["Ingress"], "ingress": [{"from": [{"podSelector": own}]}]}
    return _object(names, "networking.k8s.io/v1", "NetworkPolicy", names.account, spec=spec)


def _secret(names: JobNames, settings: Settings, facts: Facts) -> Json:
    """Give what only the pods may know: variables may be secret, so that all they are told is in it."""
    code = code_at(names.job.code, facts.digest)
    told = {
        f"order-{role.name}": json.dumps(
            order.orders(names, role, code, keep_for=settings.keep_for, shared=facts.shared), sort_keys=True
        )
        for role in roles(names.job)
    }
    held = dict(facts.secrets) if order.has_store(names.job) else {}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in {**told, **held}.items()}
    return _object(names, "v1", "Secret", names.account, type="Opaque", data=data)


def _code(names: JobNames, facts: Facts) -> Json:
    held = {"code.tar.gz": base64.b64encode(facts.code or b"").decode()}
    return _object(names, "v1", "ConfigMap", names.code, binaryData=held)


def _service(names: JobNames, name: str, selector: dict[str, str], port: int = 0) -> Json:
    """Give a Service without an address of its own: names lead to pods, ready or not."""
    spec: Json = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector}
    if port:
        spec["ports"] = [{"name": "etcd", "port": port}]
    return _object(names, "v1", "Service", name, spec=spec)


def _shelf(names: JobNames, role: Role, index: int) -> Json:
    found = _object(names, "v1", "ConfigMap", names.shelf(index), role.name)
    found["metadata"]["labels"][INDEX] = str(index)
    return found


def _set(names: JobNames, name: str, role: str, nodes: int, template: Json) -> Json:
    spec = {
        "serviceName": names.rdzv if role == RDZV else names.service,
        "replicas": nodes,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "OnDelete"},
        "selector": {"matchLabels": names.labels(role)},
        "template": template,
    }
    return _object(names, "apps/v1", "StatefulSet", name, role, spec=spec)


def _object(names: JobNames, version: str, kind: str, name: str, role: str = "", **more: Any) -> Json:
    metadata = {"name": name, "labels": names.labels(role)}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def nodes_of(names: JobNames, role: Role) -> dict[str, int]:
    """Tell which node of the job each pod of a role is."""
    return {f"{names.set_of(role)}-{seat.number}": seat.index for seat in seats_of(names.job, role)}
