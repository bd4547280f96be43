"""Images are called by what is in them; docker is a program that writes down what it was asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lattice.jobs import images
from tests.jobs.places import Place, Said

DOCKER = """\
#!/bin/sh
echo "$@" >> "$ASKED"
[ "$1" != login ] || cat >> "$ASKED"
for word; do [ ! -d "$word" ] || ls -A "$word" | sort | tr '\\n' ' ' >> "$ASKED"; done
[ "$1" != "$FAILS" ]
"""


@pytest.fixture
def machine(tmp_path: Path) -> Place:
    programs = tmp_path / "bin"
    programs.mkdir()
    docker = programs / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    made = Place("", tmp_path, tmp_path / "home")
    made.variables = {"PATH": f"{programs}:{os.environ['PATH']}", "ASKED": str(tmp_path / "asked"), "FAILS": ""}
    project = tmp_path / "project"
    project.mkdir()
    (project / "requirements.txt").write_text("einops\n")
    (project / "train.py").write_text("pass\n")
    (project / ".env").write_text("SECRET=1\n")
    return made


def build(machine: Place, *words: str) -> Said:
    said = machine.run("image", "build", *words, "project")
    assert said.code == 0, said.err
    return said


def test_an_image_is_called_by_what_is_in_it(machine: Place) -> None:
    first = build(machine, "-n", "me/train").out.strip()
    assert first.startswith("me/train:")
    assert build(machine, "-n", "me/train").out.strip() == first
    (machine.folder / "project" / "train.py").write_text("other\n")
    assert build(machine, "-n", "me/train").out.strip() != first
    assert build(machine, "-n", "me/train:7").out.strip() == "me/train:7"
    asked = (machine.folder / "asked").read_text()
    assert f"build --tag {first} --file" in asked
    assert "Dockerfile.lattice requirements.txt train.py " in asked, "what looks like a secret stays here"


def test_the_template_has_all_that_pods_need() -> None:
    text = images.template("requirements.txt")
    assert all(word in text for word in ("etcd-server etcd-client", "lattice-addons-pytorch[aws]", "USER 1000:1000"))
    assert "requirements.txt" not in images.template("")


def test_a_dockerfile_of_the_users_own(machine: Place) -> None:
    (machine.folder / "Dockerfile-base").write_text("FROM scratch\n")
    assert build(machine, "-n", "base", "-d", "Dockerfile-base").out.startswith("base:")
    missing = machine.run("image", "build", "-d", "nothing", "project")
    assert (missing.code, "no 'nothing'" in missing.err) == (2, True)


def test_a_push_names_the_image_for_its_registry(machine: Place) -> None:
    said = machine.run("image", "push", "me/train:1", "registry.example/team")
    assert (said.code, said.out) == (0, "registry.example/team/train:1\n"), said.err
    asked = (machine.folder / "asked").read_text().splitlines()
    assert asked == ["tag me/train:1 registry.example/team/train:1", "push registry.example/team/train:1"]


def test_a_builder_that_fails_or_is_missing_is_an_error(machine: Place) -> None:
    machine.variables["FAILS"] = "build"
    failed = machine.run("image", "build", "project")
    assert (failed.code, "docker build ended with 1" in failed.err) == (1, True)
    none = machine.run("image", "build", "--builder", "no-such-thing", "project")
    assert (none.code, "there is no no-such-thing" in none.err) == (2, True)
    wrong = machine.run("image", "bake")
    assert (wrong.code, "build [FOLDER]" in wrong.err) == (2, True)
