"""What is asked before anything is made, so that all that is wrong is told at once, and nothing is half made."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from lattice.errors import LatticeError, UsageError
from lattice.jobs import registry
from lattice.jobs.backends import Say
from lattice.jobs.images import ecr_login
from lattice.jobs.job import Job
from lattice.jobs.kubernetes.client import Client, KubernetesFailed
from lattice.jobs.kubernetes.order import own_store
from lattice.jobs.kubernetes.pods import OF_ETCD
from lattice.jobs.kubernetes.quantities import amount
from lattice.jobs.kubernetes.settings import Settings, gpus, images, needs
from lattice.jobs.registry import Login
from lattice.jobs.roles import roles

Json = dict[str, Any]

GPU = "nvidia.com/gpu"
EKS = "eks.amazonaws.com/"
"""how labels of EKS's nodes begin"""
PLUGIN = "lattice install --on kubernetes --gpu"
QUOTAS = "Running On-Demand G and VT, or P, instances, and All G and VT, or P, Spot Instance Requests"
CHANGING = ("create", "delete", "get", "list", "patch")
NEEDED: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("", "configmaps", "", CHANGING),
    ("", "secrets", "", CHANGING),
    ("", "services", "", ("create", "delete", "get", "list")),
    ("apps", "statefulsets", "", ("create", "delete", "get", "list")),
    ("apps", "statefulsets", "scale", ("patch",)),
    ("", "pods", "", ("delete", "get", "list")),
    ("", "pods", "log", ("get",)),
    ("networking.k8s.io", "networkpolicies", "", ("create", "delete", "get", "list")),
    ("rbac.authorization.k8s.io", "roles", "", ("create", "delete", "get", "list")),
    ("rbac.authorization.k8s.io", "rolebindings", "", ("create", "delete", "get", "list")),
    ("", "serviceaccounts", "", ("create", "delete", "get", "list")),
)
"""group, resource, part of it, verbs: all that a submission and the commands about it use"""


class NotReady(UsageError):
    """The cluster cannot take this job as it is."""


def check(client: Client, namespace: str, job: Job, settings: Settings, say: Say) -> None:
    """
    See that a cluster can take a job.

    :param say: takes what could not be asked
    :raises NotReady: says all that is wrong
    :raises KubernetesFailed: the API server cannot be reached
    """
    missing = _forbidden(client, namespace)
    if missing:
        who = f"the user of context {client.context} ({client.server})"
        raise NotReady(f"{who} may not, in namespace {namespace}: {'; '.join(missing)}. Ask for a role with these.")
    wrong = [*_namespace(client, namespace), *_named(client, namespace, job, settings)]
    wrong += [*_gpus(client, job, say), *_quota(client, namespace, job)]
    wrong += _images(client, namespace, job, settings, say)
    if wrong:
        raise NotReady("\n".join(wrong))


def lacking(quota: Json, wanted: dict[str, float]) -> list[str]:
    """Tell what a ResourceQuota has too little of. Pure."""
    status = quota.get("status", {})
    found = []
    for name, hard in status.get("hard", {}).items():
        left = amount(hard) - amount(status.get("used", {}).get(name, "0"))
        asked = wanted.get(name, 0.0)
        if asked and asked > left:  # what others have too much of is not this job's affair
            found.append(
                f"the quota {quota['metadata']['name']} leaves {left:g} of {name}, and the job wants {asked:g}: take "
                "fewer or smaller nodes, or ask for more"
            )
    return found


def wanted_of(job: Job) -> dict[str, float]:
    """Add up what a job asks for, as quotas name it. Pure."""
    found: dict[str, float] = {"statefulsets.apps": 0.0}
    total: dict[str, float] = dict.fromkeys(("pods", "cpu", "memory", GPU), 0.0)
    for role in roles(job):
        each, nodes = needs(job, role), role.size.maximum
        total["pods"] += nodes
        total["cpu"] += nodes * (amount(each.cpu) + sum(amount(one.cpu) for one in role.sidecars))
        total["memory"] += nodes * (amount(each.memory) + sum(amount(one.memory) for one in role.sidecars))
        total[GPU] += nodes * each.gpus
    if own_store(job, shared=False):
        total["pods"] += 1
        total["cpu"] += amount(OF_ETCD["requests"]["cpu"])
        total["memory"] += amount(OF_ETCD["requests"]["memory"])
    found |= {"pods": total["pods"], "count/pods": total["pods"]}
    found |= {"cpu": total["cpu"], "requests.cpu": total["cpu"]}
    found |= {"memory": total["memory"], "requests.memory": total["memory"], "limits.memory": total["memory"]}
    return found | {f"requests.{GPU}": total[GPU]}


def no_gpus(nodes: Sequence[Json], wanted: int) -> str:
    """Tell what to do if no node has so many GPUs; empty if one has. Pure."""
    most = max((int(amount(one["status"].get("allocatable", {}).get(GPU, "0"))) for one in nodes), default=0)
    if most >= wanted:
        return ""
    if most:
        return f"a node of the job wants {wanted} GPUs, and the largest of the cluster has {most}: take fewer (--gpus)"
    text = (
        f"no node of the cluster advertises {GPU}. If it has GPUs, its device plugin is missing: {PLUGIN}; otherwise "
        "add nodes with GPUs"
    )
    if any(label.startswith(EKS) for one in nodes for label in one["metadata"].get("labels", {})):
        text += f". On EKS see that the service quotas of EC2 allow them: {QUOTAS}"
    return text


def held(nodes: Sequence[Json]) -> set[str]:
    """List the images that some node has, and that are not pulled anew all the same. Pure."""
    names = {name for node in nodes for image in node["status"].get("images", ()) for name in image.get("names") or ()}
    return {name for name in names if not name.endswith(f":{registry.LATEST}")}


def _forbidden(client: Client, namespace: str) -> list[str]:
    found = []
    for group, resource, part, verbs in NEEDED:
        denied = [verb for verb in verbs if not client.may(namespace, verb, group, resource, part)]
        if denied:
            found.append(f"{', '.join(denied)} {resource}{'/' if part else ''}{part}{'.' if group else ''}{group}")
    return found


def _namespace(client: Client, namespace: str) -> list[str]:
    try:
        if client.get("Namespace", "", namespace) is not None:
            return []
    except KubernetesFailed:
        return []  # not all may ask
    return [f"there is no namespace {namespace}: kubectl create namespace {namespace}, or name another (--namespace)"]


def _named(client: Client, namespace: str, job: Job, settings: Settings) -> list[str]:
    """See that there is what the user named."""
    asked = [("Secret", name, f"lattice secret create {name} --from-env") for name in settings.secrets]
    if settings.image_pull_secret:
        asked.append(("Secret", settings.image_pull_secret, "kubectl create secret docker-registry"))
    if settings.service_account:
        asked.append(("ServiceAccount", settings.service_account, "or leave out --service_account"))
    claims = {one.claim for role in job.roles for one in role.volumes if one.claim}
    asked += [("PersistentVolumeClaim", name, "make it first") for name in sorted(claims)]
    found = []
    for kind, name, step in asked:
        try:
            if client.get(kind, namespace, name) is None:
                found.append(f"there is no {kind} {name} in namespace {namespace}: {step}")
        except KubernetesFailed as error:
            if error.status != 403:
                raise
    return found


def _gpus(client: Client, job: Job, say: Say) -> list[str]:
    wanted = gpus(job)
    if not wanted:
        return []
    nodes = _nodes(client)
    if nodes is None:
        say("whether nodes have GPUs cannot be seen by this user")
        return []
    text = no_gpus(nodes, wanted)
    return [text] if text else []


def _quota(client: Client, namespace: str, job: Job) -> list[str]:
    try:
        quotas = client.list("ResourceQuota", namespace)
    except KubernetesFailed as error:
        if error.status != 403:
            raise
        return []
    wanted = wanted_of(job)
    return [one for quota in quotas for one in lacking(quota, wanted)]


def _images(client: Client, namespace: str, job: Job, settings: Settings, say: Say) -> list[str]:
    """See that registries have the images which nodes will ask them for."""
    if settings.image_pull_policy == "Never":
        return []
    config = _logins(client, namespace, settings)
    wanted = images(job)
    if settings.image_pull_policy != "Always":
        wanted -= held(_nodes(client) or ())
    found = []
    for image in sorted(wanted):
        host = asked.host if (asked := registry.parse(image)) else ""
        theirs = registry.login(config, host)
        answer = registry.look(image, theirs or _own_login(host))
        if answer.there is False or (answer.refused and theirs):
            found.append(
                f"the image {image} cannot be pulled: {answer.words}. Push it (lattice image push), or name another"
            )
        elif not answer.there:
            say(f"whether the image {image} can be pulled cannot be seen from here: {answer.words}")
    return found


def _own_login(host: str) -> Login | None:
    """Find a login that nodes of AWS have by themselves, and this user perhaps as well."""
    try:
        return ecr_login(host)
    except LatticeError:
        return None


def _nodes(client: Client) -> list[Json] | None:
    """List the nodes of the cluster; None if this user may not."""
    try:
        return client.list("Node", "")
    except KubernetesFailed as error:
        if error.status != 403:
            raise
        return None


def _logins(client: Client, namespace: str, settings: Settings) -> Json:
    """Read the Secret that images are pulled with; empty if there is none, or none that can be read."""
    try:
        name = settings.image_pull_secret
        secret = client.get("Secret", namespace, name) if name else None
        found = json.loads(base64.b64decode((secret or {}).get("data", {}).get(".dockerconfigjson", "")) or "{}")
    except (KubernetesFailed, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
