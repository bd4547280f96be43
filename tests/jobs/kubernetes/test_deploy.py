"""What is in ``deploy`` is what the program makes of its example, and is right."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lattice.jobs.job import Job
from lattice.jobs.jobfile import read
from lattice.jobs.kubernetes import install, rendering
from lattice.jobs.kubernetes.names import JobNames
from lattice.jobs.meaning import job
from lattice.jobs.options import SUBMIT
from lattice.options.parsing import parse

DEPLOY = Path(__file__).parents[3] / "deploy"


def example() -> Job:
    return job(parse([], {}, SUBMIT), read(str(DEPLOY / "job.yaml")))


def test_the_manifests_are_those_of_the_example() -> None:
    made = rendering.files(example(), lambda _: None)
    there = {str(path.relative_to(DEPLOY / "k8s")): path for path in (DEPLOY / "k8s").rglob("*") if path.is_file()}
    again = "lattice render --file deploy/job.yaml -o deploy/k8s"
    assert {name: path.read_text() for name, path in there.items()} == made, f"if this is meant: {again}"
    assert {"learner.yaml", "workers.yaml"} <= made.keys()


@pytest.mark.parametrize("version", ["1.32", "newest"])
def test_they_fit_the_schemas(version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    wanted = validate.latest_version() if version == "newest" else version
    texts = [path.read_text() for path in (DEPLOY / "k8s").glob("*.yaml")]
    shared = [*install.shared_etcd("image", {"key": ""}), *install.device_plugin()]
    for manifest in [*(one for text in texts for one in yaml.safe_load_all(text)), *shared]:
        validate.validate(manifest, wanted, strict=True)


def test_the_etcd_of_all_jobs_admits_their_pods_only() -> None:
    made = {one["kind"]: one for one in install.shared_etcd("image", {})}
    spec, pod = made["NetworkPolicy"]["spec"], made["StatefulSet"]["spec"]["template"]["metadata"]
    assert spec["podSelector"]["matchLabels"] == pod["labels"]
    ((rule,), (who,)) = (spec["ingress"], spec["ingress"][0]["from"])
    assert (who["namespaceSelector"], [one["port"] for one in rule["ports"]]) == ({}, [2379])
    assert who["podSelector"]["matchLabels"].items() <= JobNames(example(), "roles-1").labels("learner").items()


def test_the_cluster_has_room_for_the_example() -> None:
    groups = {
        one["name"]: one for one in yaml.safe_load((DEPLOY / "cluster-conf.yaml").read_text())["managedNodeGroups"]
    }
    sizes = {role.name: role.size.maximum for role in example().roles}
    assert groups.keys() == sizes.keys()
    assert all(groups[name]["maxSize"] >= size for name, size in sizes.items())
    assert groups["workers"]["spot"] is True


def test_the_way_to_a_running_job_makes_every_image_of_the_example() -> None:
    way = (DEPLOY.parent / "docs" / "kubernetes.md").read_text().split("```console\n")[2].split("```")[0]
    found = example()
    images = {found.place_options["image"], *(one.image for role in found.roles for one in role.sidecars)}
    for image in images:
        words = f"lattice image build -n {image} -d deploy/"
        assert (DEPLOY / way.split(words)[1].split()[0]).is_file()
        assert f"lattice image push {image} " in way
        assert f"create-repository --region us-east-1 --repository-name {image.partition(':')[0]}" in way
