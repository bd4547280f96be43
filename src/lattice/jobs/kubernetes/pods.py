"""The pods of a job: of a role's nodes, and of its etcd. Pure."""

from __future__ import annotations

from typing import Any

from lattice.jobs.job import Job, Role, Sidecar, Volume
from lattice.jobs.kubernetes.names import RDZV, JobNames
from lattice.jobs.kubernetes.order import CODE, PORT, TOLD, WORK, has_store
from lattice.jobs.kubernetes.settings import Needs, Settings, needs
from lattice.jobs.roles import roles

Json = dict[str, Any]

NODE, UNPACK = "node", "code"
"""names of the containers that run the agent, and bring the code"""
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ARCHIVE = "/etc/lattice-code"
USER = 1000
FAREWELL = 15
"""seconds beyond those of the workers in which a node says goodbye"""
LOST_AFTER = 30
"""seconds after which the pods of a node that does not answer are given up"""
OF_ETCD = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}
_OWN_VARIABLES: list[Json] = [
    {"name": "HOME", "value": WORK},
    {"name": "LATTICE_POD_UID", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.uid"}}},
]
SAFE: Json = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
AS_USER: Json = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def grace(role: Role) -> int:
    """Tell how many seconds the nodes of a role have to end."""
    said = dict(role.run_options)
    # What is saved is written after that; a sidecar that does not end would take all of it, so only who asks has more.
    usual = {"shutdown_timeout": 30, "notice_grace": 30, "checkpoint_timeout": 0}
    return int(sum(float(said.get(name, seconds)) for name, seconds in usual.items())) + FAREWELL


def of_role(names: JobNames, role: Role, settings: Settings) -> Json:
    """Give the pod of a role's nodes: the agent, and what stands beside it."""
    job, wanted = names.job, needs(names.job, role)
    mounts = _mounts(role.volumes)
    own: list[Json] = [
        {"name": "work", "mountPath": WORK},
        {"name": "told", "mountPath": TOLD, "readOnly": True},
        {"name": "account", "mountPath": ACCOUNT, "readOnly": True},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    node = {
        **_container(NODE, wanted.image, settings.image_pull_policy, [*own, *mounts]),
        "command": ["python3", "-m", "lattice.jobs.kubernetes.entry", "node"],
        "env": _OWN_VARIABLES,
        "resources": _resources(wanted),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **_variables_of(settings),
    }
    spec = {
        **_common(settings, grace(role)),
        **({"initContainers": [_unpacking(job, wanted, settings)]} if job.code.upload else {}),
        "containers": [node, *(_sidecar(one, settings, mounts) for one in role.sidecars)],
        "volumes": _volumes(names, role),
        "serviceAccountName": settings.service_account or names.account,
        "tolerations": _tolerations(gpu=bool(wanted.gpus)),
    }
    return {"metadata": {"labels": names.labels(role.name)}, "spec": spec}


def of_etcd(names: JobNames, settings: Settings) -> Json:
    """Give the pod of the job's etcd, out of the primary role's image."""
    image = needs(names.job, roles(names.job)[0]).image
    etcd = etcd_container(image, settings.image_pull_policy, _OWN_VARIABLES, "work")
    spec = {
        **_common(settings, FAREWELL),
        "containers": [etcd],
        "volumes": [{"name": "work", "emptyDir": {}}, etcd_secret(names.account)],
        "tolerations": _tolerations(gpu=False),
    }
    return {"metadata": {"labels": names.labels(RDZV)}, "spec": spec}


def etcd_container(image: str, pull_policy: str, variables: list[Json], data: str) -> Json:
    """
    Give the container of an etcd.

    :param variables: its home, and by what its data are told from another's
    :param data: the volume for them
    """
    mounts: list[Json] = [{"name": data, "mountPath": WORK}, {"name": "told", "mountPath": TOLD, "readOnly": True}]
    return {
        **_container(RDZV, image, pull_policy, mounts),
        "command": ["python3", "-m", "lattice.jobs.kubernetes.entry", "rdzv"],
        "env": variables,
        "ports": [{"name": "etcd", "containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 5},
        "resources": OF_ETCD,
    }


def etcd_secret(name: str) -> Json:
    """Give the volume with what only an etcd may know, out of a Secret."""
    return _secret(name, [{"key": key, "path": key} for key in ("certificate", "key", "password")])


def _common(settings: Settings, seconds: int) -> Json:
    pulling = settings.image_pull_secret
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": AS_USER,
        "terminationGracePeriodSeconds": seconds,
        **({"imagePullSecrets": [{"name": pulling}]} if pulling else {}),
    }


def _container(name: str, image: str, policy: str, mounts: list[Json]) -> Json:
    return {
        "name": name,
        "image": image,
        **({"imagePullPolicy": policy} if policy else {}),
        "securityContext": SAFE,
        "volumeMounts": mounts,
    }


def _unpacking(job: Job, wanted: Needs, settings: Settings) -> Json:
    mounts: list[Json] = [
        {"name": "work", "mountPath": WORK},
        {"name": "told", "mountPath": TOLD, "readOnly": True},
    ]
    if not job.code.source.startswith("s3://"):
        mounts.append({"name": "code", "mountPath": ARCHIVE, "readOnly": True})
    return {
        **_container(UNPACK, wanted.image, settings.image_pull_policy, mounts),
        "command": ["python3", "-m", "lattice.jobs.kubernetes.entry", "code", f"{ARCHIVE}/code.tar.gz", CODE],
        "env": [{"name": "HOME", "value": WORK}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        # The same as the node's: they never run at the same time, and a quota may want every container to say.
        "resources": {name: dict(amounts) for name, amounts in _resources(wanted, gpus=False).items()},
        **_variables_of(settings),
    }


def _sidecar(sidecar: Sidecar, settings: Settings, mounts: list[Json]) -> Json:
    return {
        **_container(sidecar.name, sidecar.image, settings.image_pull_policy, mounts),
        **({"command": list(sidecar.command)} if sidecar.command else {}),
        "env": [{"name": name, "value": value} for name, value in sidecar.environment],
        "resources": _resources(Needs(sidecar.image, sidecar.cpu, sidecar.memory)),
        **_variables_of(settings),
    }


def _resources(wanted: Needs, *, gpus: bool = True) -> Json:
    """Processors are shared by need, memory is a promise and a limit."""
    requests = {"cpu": wanted.cpu, "memory": wanted.memory}
    limits = {"memory": wanted.memory, "nvidia.com/gpu": str(wanted.gpus) if wanted.gpus and gpus else ""}
    found = {"requests": {k: v for k, v in requests.items() if v}, "limits": {k: v for k, v in limits.items() if v}}
    return {name: amounts for name, amounts in found.items() if amounts}


def _variables_of(settings: Settings) -> Json:
    return {"envFrom": [{"secretRef": {"name": name}} for name in settings.secrets]} if settings.secrets else {}


def _mounts(volumes: tuple[Volume, ...]) -> list[Json]:
    return [
        {"name": f"of-{one.name}", "mountPath": one.path, **({"readOnly": True} if one.read_only else {})}
        for one in volumes
    ]


def _volumes(names: JobNames, role: Role) -> list[Json]:
    told = [{"key": f"order-{role.name}", "path": "order"}]
    if has_store(names.job):
        told += [{"key": name, "path": name} for name in ("certificate", "password")]
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
    authority = {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    fields = [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]
    found: list[Json] = [
        {"name": "work", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
        _secret(names.account, told),
        {"name": "account", "projected": {"sources": [token, authority, {"downwardAPI": {"items": fields}}]}},
    ]
    if names.job.code.upload and not names.job.code.source.startswith("s3://"):
        found.append({"name": "code", "configMap": {"name": names.code}})
    for one in role.volumes:
        claim = {"persistentVolumeClaim": {"claimName": one.claim}} if one.claim else {"emptyDir": {}}
        found.append({"name": f"of-{one.name}", **claim})
    return found


def _secret(name: str, items: list[dict[str, str]]) -> Json:
    return {"name": "told", "secret": {"secretName": name, "defaultMode": 0o440, "items": items}}


def _tolerations(*, gpu: bool) -> list[Json]:
    """Give up lost nodes sooner than after five minutes; nodes with GPUs are often kept for those who want some."""
    found: list[Json] = [
        {
            "key": f"node.kubernetes.io/{trouble}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": LOST_AFTER,
        }
        for trouble in ("not-ready", "unreachable")
    ]
    return [*found, {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}] if gpu else found
