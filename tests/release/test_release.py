"""A release goes to a private index and installs from it, as the documentation says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import lattice
from tests.etcd_server import free_ports, listens
from tests.waiting import eventually, patience

ROOT = Path(__file__).parents[2]


def run(*argv: str, cwd: Path | None = None, home: Path | None = None) -> str:
    """Run a command to its end and give what it printed."""
    mine = ("MAKE", "MFLAGS", "TWINE_", "PIP_")
    variables = {key: value for key, value in os.environ.items() if not key.startswith(mine)}
    # No proxy and no index of the machine: what is installed can only come from the index of the test.
    variables |= {"NO_PROXY": "127.0.0.1", "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if home is not None:
        variables["HOME"] = str(home)
    done = subprocess.run(
        argv,
        cwd=cwd,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience(200),
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(argv)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A package index on loopback that takes what anybody uploads."""
    packages, log = tmp_path_factory.mktemp("packages"), tmp_path_factory.mktemp("log") / "log"
    (port,) = free_ports(1)
    address = ("-i", "127.0.0.1", "-p", str(port))
    argv = [
        sys.executable,
        "-m",
        "pypiserver",
        "run",
        *address,
        "-a",
        ".",
        "-P",
        ".",
        "--disable-fallback",
        str(packages),
    ]
    with log.open("wb") as out:
        server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def serves() -> bool:
        assert server.poll() is None, log.read_text()
        return listens(server.pid, port)

    try:
        eventually(serves)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def released(index: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Release a copy of this tree to the index with make, and give the index."""
    home, tree = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("tree")
    (home / ".pypirc").write_text(
        f"[distutils]\nindex-servers = local\n\n[local]\nrepository: {index}\nusername: me\npassword: secret\n"
    )
    for name in ("src", "requirements", "scripts"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("Makefile", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, tree / name)
    # The environment of this test has all that a release needs: the copy uses it as its own.
    run("make", "upload", f"BIN={Path(sys.executable).parent}", "BUILD_OPTIONS=--no-isolation", cwd=tree, home=home)
    return index


def test_the_index_serves_what_was_uploaded(released: str) -> None:
    with urllib.request.urlopen(f"{released}/simple/lattice-addons-pytorch/") as page:
        text = page.read().decode()
    stem = f"lattice_addons_pytorch-{lattice.__version__}"
    assert f"{stem}-py3-none-any.whl" in text
    assert f"{stem}.tar.gz" in text


def test_a_fresh_environment_installs_it_from_the_index(released: str, tmp_path: Path) -> None:
    python = tmp_path / "venv/bin/python"
    run(sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv"))
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-cache-dir")
    run(*pip, "-i", f"{released}/simple", "--trusted-host", "127.0.0.1", "lattice-addons-pytorch")
    assert lattice.__version__ in run(str(tmp_path / "venv/bin/lattice"), "--version", cwd=tmp_path)
    # Help and usage errors need none of the dependencies, which are not there.
    assert "--nnodes" in run(str(python), "-m", "lattice.torch.run", "--help", cwd=tmp_path)
    assert (tmp_path / f"venv/lib/python3.{sys.version_info.minor}/site-packages/lattice/py.typed").exists()
