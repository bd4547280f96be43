"""``lattice image`` with a real Docker engine: what it builds runs, and can be had from a registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.places import Place
from tests.lab.engine import Engine
from tests.lab.scripts import call
from tests.waiting import eventually

# tests/sharing.py keeps these in one process: the engine and the image are made once.
pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
PYTHON = """\
FROM local/base
RUN python3 -m venv /opt/python
ENV PATH=/opt/python/bin:$PATH
COPY . /src
RUN pip wheel -q --no-deps -w /wheels /src && rm -r /src
"""
"""stands for an image of Python and an index that has this Lattice"""
REGISTRY = "127.0.0.1:5000"
CONFIGURATION = f"""\
version: 0.1
storage: {{filesystem: {{rootdirectory: /tmp/registry}}}}
http: {{addr: {REGISTRY}}}
"""
INSIDE = """
id -u
etcd --version | head -n 1
lattice version
python3 -c 'import boto3, tyro'
lattice run train.py
"""


@pytest.fixture
def machine(built: Engine, tmp_path: Path) -> Place:
    made = Place("", tmp_path, tmp_path / "home")
    made.variables = built.variables
    project = tmp_path / "project"
    project.mkdir()
    (project / "requirements.txt").write_text("tyro\n")
    (project / "train.py").write_text("import os\nprint('in', os.getcwd(), os.environ['LATTICE_RANK'])\n")
    (project / ".env").write_text("SECRET=1\n")
    return made


@pytest.fixture(scope="module")
def python(built: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("python") / "Dockerfile"
    file.write_text(PYTHON)
    built.docker("build", "-q", "-t", "local/python", "-f", str(file), str(ROOT), within=300)
    return "local/python"


def build(machine: Place, *words: str) -> str:
    said = machine.run("image", "build", *words)
    assert said.code == 0, said.err
    return said.out.removesuffix("\n")


def test_a_folder_becomes_an_image_that_has_all_a_pod_needs(machine: Place, built: Engine, python: str) -> None:
    words = ("-n", "me/train", "--base", python, "project")
    image = build(machine, *words)
    said = built.docker("run", "--rm", "--network", "none", image, "sh", "-ec", INSIDE).stdout
    uid, etcd, version, printed = (line for line in said.splitlines() if not line.startswith("lattice: "))
    assert (uid, etcd.split(":")[0], printed) == ("1000", "etcd Version", "[rank 0] in /app 0")
    assert version.startswith("lattice ")
    files = built.docker("run", "--rm", image, "ls", "-A").stdout.split()
    assert files == ["Dockerfile.lattice", "requirements.txt", "train.py"], "what looks like a secret stays here"
    assert build(machine, *words) == image
    (machine.folder / "project" / "train.py").write_text("print('other')\n")
    other = build(machine, *words)
    assert other != image
    listed = built.docker("images", "--format", "{{.Repository}}:{{.Tag}}", "me/train").stdout.split()
    assert sorted(listed) == sorted([image, other])


def test_a_base_and_a_node_from_the_dockerfiles_of_deploy(machine: Place, built: Engine) -> None:
    # The repository's own image stands for one of Python: it has torch and the wheels.
    files = [str(ROOT / "deploy" / name) for name in ("Dockerfile-base", "Dockerfile-node")]
    base = build(machine, "-n", "lattice-base", "-d", files[0], "--base", "lattice-agent", str(ROOT))
    node = build(machine, "-n", "train", "-d", files[1], "--base", base, str(ROOT))
    assert node != build(machine, "-n", "train", "-d", files[1], "--base", "lattice-agent", str(ROOT)), "another base"
    script = "id -u; pwd; ls; python3 -c 'import boto3, torch, lattice; print(lattice.__file__)'"
    said = built.docker("run", "--rm", "--network", "none", "--entrypoint", "sh", node, "-ec", script).stdout
    uid, folder, *files, where = said.splitlines()
    assert (uid, folder, {"learner.py", "worker.py"} <= set(files)) == ("1000", "/app", True), said
    assert where.startswith("/opt/"), where


def test_a_sidecar_from_the_dockerfiles_of_deploy_ends_when_it_is_told(
    machine: Place, built: Engine, python: str
) -> None:
    file = str(ROOT / "deploy" / "Dockerfile-simulator")
    image = build(machine, "-n", "simulator", "-d", file, "--base", python, "project")
    built.docker("run", "-d", "--name", "simulator", "--network", "none", image)
    try:
        looked = ("inspect", "--format", "{{.State.Status}} {{.State.ExitCode}} {{.Config.User}}", "simulator")

        def told_and_ended() -> bool:
            built.docker("kill", "--signal", "TERM", "simulator", check=False)  # one that comes too early is not heard
            return built.docker(*looked).stdout.startswith("exited")

        eventually(told_and_ended, within=60)
        assert built.docker(*looked).stdout.split() == ["exited", "0", "1000:1000"]
    finally:
        built.docker("rm", "-f", "simulator")


@pytest.fixture
def registry(built: Engine, tmp_path: Path) -> Iterator[str]:
    """A registry, as a container beside the engine."""
    program = call("docker/registry.sh", variables=built.variables, within=300).strip()
    (tmp_path / "registry.yml").write_text(CONFIGURATION)
    mounts = ("-v", f"{program}:/usr/bin/registry:ro", "-v", f"{tmp_path}/registry.yml:/registry.yml:ro")
    command = ("registry", "serve", "/registry.yml")
    built.docker("run", "-d", "--name", "registry", "--network", "host", *mounts, "local/base", *command)
    try:
        listening = ("exec", "registry", "python3", "-c")
        script = f"import urllib.request; urllib.request.urlopen('http://{REGISTRY}/v2/')"
        eventually(lambda: built.docker(*listening, script, check=False).returncode == 0)
        yield REGISTRY
    finally:
        print(built.docker("logs", "registry", check=False).stdout)
        built.docker("rm", "-f", "registry")


def test_an_image_is_pushed_to_a_registry_and_can_be_pulled(machine: Place, built: Engine, registry: str) -> None:
    (machine.folder / "Dockerfile").write_text("FROM scratch\nCOPY train.py /\n")
    image = build(machine, "-n", "me/small", "-d", "Dockerfile", "project")
    said = machine.run("image", "push", image, f"{registry}/team")
    there = f"{registry}/team/{image.removeprefix('me/')}"
    assert (said.code, said.out) == (0, f"{there}\n"), said.err
    built.docker("rmi", there, image)
    assert there not in built.docker("images", "--format", "{{.Repository}}:{{.Tag}}").stdout.split()
    built.docker("pull", there)
    nowhere = machine.run("image", "push", there, "127.0.0.1:9/team")
    assert (nowhere.code, "docker push ended with 1" in nowhere.err) == (1, True), nowhere.err
