from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import run

import pytest
import torch.distributed as dist

from lattice.core.spec import StoreSpec
from lattice.environments.store import store_variables
from lattice.torch.gateway import Access
from lattice.torch.rendezvous import access, handler, register


def python(program: str, **variables: str) -> str:
    """Run a program in a fresh interpreter and give what it printed last."""
    variables = {**os.environ, **variables}
    done = run([sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_imports_no_torch() -> None:
    program = "import sys, lattice.torch; print('torch' in sys.modules, 'http.client' in sys.modules)"
    assert python(program) == "False False"


HANDLERS = "print('lattice' in sys.modules['torch.distributed.rendezvous']._rendezvous_handlers)"


@pytest.mark.parametrize("autoload", ["0", "1"])
def test_torch_knows_the_scheme_once_both_are_imported(autoload: str) -> None:
    program = f"import sys, torch.distributed, lattice.torch; lattice.torch.register(); {HANDLERS}"
    assert python(program, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload) == "True"


def test_an_installed_lattice_needs_no_import() -> None:
    from importlib.metadata import entry_points

    if not [entry for entry in entry_points(group="torch.backends") if entry.name == "lattice"]:
        pytest.skip("Lattice is on the path but not installed, so torch does not find it by itself")
    assert python(f"import sys, torch; {HANDLERS}", TORCH_DEVICE_BACKEND_AUTOLOAD="1") == "True"


def test_registering_again_is_fine() -> None:
    register()
    register()


def test_names_that_are_not_there_are_an_attribute_error() -> None:
    import lattice.torch

    with pytest.raises(AttributeError, match="nothing"):
        lattice.torch.nothing  # noqa: B018
    assert issubclass(lattice.torch.EtcdStore, dist.Store)


def test_outside_of_a_run_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LATTICE_RANK", "RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="LATTICE_RANK is not set: start this program with `lattice run"):
        next(handler("lattice://"))


def test_the_variables_say_where_etcd_is() -> None:
    variables = {
        "LATTICE_STORE_ENDPOINTS": "host:2379,[::1]:2380",
        "LATTICE_STORE_USER": "u",
        "LATTICE_STORE_PASSWORD": "p",
        "LATTICE_STORE_CACERT": "ca.crt",
    }
    assert access(variables) == Access((("host", 2379), ("::1", 2380)), "ca.crt", user="u", password="p")


def test_the_variables_may_name_files_in_place_of_what_changes_or_is_secret(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    found = store_variables(
        StoreSpec(
            "etcd",
            endpoints_file="/run/endpoints",
            user="u",
            password="secret",
            password_file=str(tmp_path / "password"),
            server_name="etcd.of.a.run",
        ),
        lease=7,
    )
    assert "secret" not in found.values()
    assert access(found) == Access(
        (), user="u", password="secret", server_name="etcd.of.a.run", endpoints_file="/run/endpoints"
    )
