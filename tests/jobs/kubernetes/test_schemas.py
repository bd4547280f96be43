"""Every manifest is what Kubernetes takes: the schemas of 1.32 and of the newest, and the lab's own server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lattice.core.spec import NodeRange
from lattice.errors import UsageError
from lattice.jobs.job import Code, Job, Role, Sidecar, Volume
from lattice.jobs.kubernetes import plan
from lattice.jobs.kubernetes.names import LONGEST, JobNames
from lattice.jobs.kubernetes.plan import Facts
from lattice.jobs.kubernetes.pods import grace
from lattice.jobs.kubernetes.settings import settings
from tests.lab.cluster import Cluster

SECRETS = dict.fromkeys(plan.SECRETS, "secret")
OPTIONS = {"image": "me/train:1", "namespace": "team", "secrets": "aws", "image_pull_secret": "pull"}
ONE = Job("try", "kubernetes", NodeRange(2, 2), Code("train.py"), place_options=OPTIONS)
LEARNER = Role(
    "learner",
    NodeRange(1, 1),
    script="learn.py",
    place_options={"image": "me/train:1", "gpus": "1", "cpu": "4", "memory": "8Gi"},
    volumes=(Volume("data", "/data", "claim", read_only=True), Volume("scratch", "/scratch")),
)
WORKER = Role(
    "worker",
    NodeRange(2, 16),
    command=("./act",),
    place_options={"image": "me/train:1"},
    group="each",
    sidecars=(Sidecar("simulator", "me/simulator:1", ("simulate",), (("SPEED", "2"),), "1", "2Gi"),),
)
ROLES = replace(ONE, size=NodeRange(3, 17), code=Code("project"), roles=(LEARNER, WORKER))
BAKED = replace(ONE, size=NodeRange(1, 1), code=Code("/app/train.py", upload=False))
JOBS = {
    "one": ONE,
    "roles": ROLES,
    "baked": BAKED,
    "s3": replace(ONE, code=Code("s3://bucket/code.tar.gz", "train.py")),
}


def made(job: Job, owner: str = "9c2b6a0e-2f3c-4c53-9d5f-0d3a5c1c7f10") -> list[dict[str, Any]]:
    names = JobNames(job, f"{job.name}-12345678")
    sends = job.code.upload and not job.code.source.startswith("s3://")
    facts = Facts(SECRETS, code=b"archive" if sends else None, digest="", owner=owner)
    return [plan.owner(names, facts), *plan.manifests(names, settings(job.place_options), facts)]


@pytest.mark.parametrize("job", sorted(JOBS))
@pytest.mark.parametrize("version", ["1.32", "newest"])
def test_manifests_fit_the_schemas(job: str, version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    wanted = validate.latest_version() if version == "newest" else version
    for manifest in made(JOBS[job]):
        validate.validate(manifest, wanted, strict=True)


@pytest.mark.parametrize("job", sorted(JOBS))
def test_a_server_of_1_20_takes_them_and_drops_nothing(job: str, kubernetes_cluster: Cluster, namespace: str) -> None:
    from lattice.jobs.kubernetes.client import Client

    client = Client(str(kubernetes_cluster.kubeconfig))
    for manifest in made(JOBS[job], owner=""):
        if manifest["kind"] == "RoleBinding":
            manifest["subjects"][0]["namespace"] = namespace
        answer = client.create(namespace, manifest, dry=True)
        assert missing(manifest, answer) == [], manifest["kind"]


def missing(wanted: Any, found: Any, where: str = "") -> list[str]:
    """Name what an answer lacks of what was sent."""
    if isinstance(wanted, dict):
        return [
            one for key, value in wanted.items() for one in missing(value, (found or {}).get(key), f"{where}.{key}")
        ]
    if isinstance(wanted, list):
        pairs = zip(wanted, found or [], strict=False)
        short = [] if len(found or []) == len(wanted) else [where]
        return [*short, *(one for pair in pairs for one in missing(*pair, where=f"{where}[]"))]
    return [] if found == wanted else [f"{where}: {wanted!r} is {found!r}"]


@pytest.mark.parametrize("job", sorted(JOBS))
def test_all_that_is_made_has_its_labels_and_goes_with_its_owner(job: str) -> None:
    first, *others = made(JOBS[job])
    assert "ownerReferences" not in first["metadata"]
    for manifest in others:
        assert manifest["metadata"]["labels"]["lattice/submission"] == "try-12345678"
        assert [one["name"] for one in manifest["metadata"]["ownerReferences"]] == ["try"]


@pytest.mark.parametrize("job", sorted(JOBS))
def test_pods_have_no_more_rights_than_they_need(job: str) -> None:
    sets = [one for one in made(JOBS[job]) if one["kind"] == "StatefulSet"]
    for spec in (one["spec"]["template"]["spec"] for one in sets):
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not any("hostPath" in volume for volume in spec["volumes"])
        for container in [*spec.get("initContainers", ()), *spec["containers"]]:
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            account = [one["name"] for one in container["volumeMounts"] if one["name"] == "account"]
            assert account == (["account"] if container["name"] == "node" else [])


def test_a_long_name_fits_into_a_label() -> None:
    role = replace(LEARNER, name="a-role-with-long-name")
    names = JobNames(replace(ROLES, name="a" * 40, roles=(role,)), "x")
    assert len(names.set_of(role)) <= LONGEST
    assert names.set_of(role) != names.set_of(replace(role, name="a-role-with-long-names"))


def test_what_does_not_fit_is_refused_with_the_ways_out() -> None:
    with pytest.raises(UsageError, match=r"1,000,000 bytes.*900,000.*image build.*s3://"):
        plan.check_size(1_000_000)


def test_a_name_that_no_service_can_have_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--name is '1try': .* begin with a letter"):
        made(replace(ONE, name="1try"))


def test_sidecars_have_the_variables_of_the_same_secrets_as_the_nodes() -> None:
    (found,) = (one for one in made(ROLES) if one["kind"] == "StatefulSet" and one["metadata"]["name"] == "try-worker")
    node, sidecar = found["spec"]["template"]["spec"]["containers"]
    assert node["envFrom"] == sidecar["envFrom"] == [{"secretRef": {"name": "aws"}}]


def test_a_job_without_an_image_is_refused() -> None:
    with pytest.raises(UsageError, match="needs --image"):
        made(replace(ONE, place_options={}))


def test_nodes_have_as_long_to_end_as_their_options_say() -> None:
    for options, seconds in (((), 75), ((("notice_grace", "5"),), 50), ((("checkpoint_timeout", "120"),), 195)):
        assert grace(replace(WORKER, run_options=options)) == seconds
