"""The settings of a launch, wherever they are told of: in Python, on a command line, to type checkers, in the docs."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from lattice import Launcher
from lattice.errors import UsageError
from lattice.launch_command import options
from lattice.launching.settings import Settings, only_in_python
from lattice.options.arguments import field_docs
from tests.agents import ROOT, clean_environment
from tests.waiting import patience


def test_type_checkers_are_told_of_every_field() -> None:
    assert get_type_hints(Settings) == get_type_hints(Launcher)


def test_every_field_has_a_docstring_and_an_option() -> None:
    names = {one.name for one in fields(Launcher)}
    assert set(field_docs(Launcher)) == names
    known = {one.name: one for one in options()}
    assert set(known) == names - {"log_handlers"} | {"target", "json", "output"}
    assert only_in_python(Launcher) == {"log_handlers"}
    unreadable = [name for name, one in known.items() if one.kind is None]
    assert not unreadable, "mark it OnlyInPython, or give it a type that can be written"
    assert not [name for name, one in known.items() if name != "target" and not one.help]


def row(name: str, default: object) -> str:
    shown = repr(default)
    if isinstance(default, tuple) and default:
        shown = f"({default[0]!r}, {default[1]!r}, ...)"
    return f"| `{name}` | `{shown}` | {field_docs(Launcher)[name]} |"


def test_the_docs_have_every_setting() -> None:
    page = (ROOT / "docs" / "launch.md").read_text(encoding="utf-8")
    for one in fields(Launcher):
        assert one.default is not MISSING
        assert row(one.name, one.default) in page.splitlines(), "the table of settings in docs/launch.md is stale"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("timeout", 0),
        ("timeout", None),
        ("timeout", True),
        ("max_restarts", -1),
        ("run_timeout", float("nan")),
        ("shutdown_timeout", "5"),
        ("framework", "keras"),
    ],
)
def test_what_cannot_be_meant_is_named_at_once(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} is "):
        Launcher(**{name: value})


def run(script: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**clean_environment(), "LATTICE_LOG_DIR": str(script.parent / "logs"), "COLUMNS": "100"}
    line = [sys.executable, str(script), *words]
    return subprocess.run(line, env=environ, capture_output=True, text=True, timeout=patience(120), check=False)


TYRO = """
import lattice
import tyro

if __name__ == "__main__":
    print(tyro.cli(lattice.Launcher))
"""


def test_tyro_makes_a_launcher_and_explains_every_field(tmp_path: Path) -> None:
    pytest.importorskip("tyro", reason="tyro is not installed")
    (script := tmp_path / "launches.py").write_text(TYRO)
    shown = run(script, "--help")
    assert shown.returncode == 0, shown.stderr
    text = " ".join(shown.stdout.replace("│", " ").split())
    for one in fields(Launcher):
        if one.name != "log_handlers":
            assert f"--{one.name.replace('_', '-')} " in text
            assert " ".join(field_docs(Launcher)[one.name].split()) in text
    assert "--hostnames {[STR [STR ...]]}|{auto,slurm}" in text
    assert "--ssh-config-file {None}|STR|PATH" in text
    assert "--backend {None,nccl,gloo,mpi,ucc,auto}" in text
    assert "log-handlers" not in text and "{fixed}" not in text and "subcommands" not in text
    made = run(script, "--hostnames", "a", "b", "--workers-per-host", "2", "3", "--backend", "None", "--env-file", "x")
    assert made.stdout.startswith(
        "Launcher(hostnames=['a', 'b'], workers_per_host=[2, 3], ssh_config_file=None, backend=None, timeout=600"
    ), made.stderr
    assert "env_file='x'" in made.stdout


def test_argparse_makes_a_launcher(tmp_path: Path) -> None:
    (script := tmp_path / "launches.py").write_text((ROOT / "examples" / "launch_with_argparse.py").read_text())
    done = run(script, "--epochs", "3", "--hostnames", "localhost", "--workers-per-host", "2", "--no-backend")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["rank 0 of 2: 3 epochs", "rank 1 of 2: 3 epochs"]
    wrong = run(script, "--workers-per-host", "many")
    assert wrong.returncode == 1
    assert "workers_per_host is 'many'" in wrong.stderr


@pytest.mark.parametrize(
    "wrong",
    [{"log_handlers": [1]}, {"log_handlers": "x"}, {"default_env_vars": "PATH"}, {"extra_env_vars": "HF_*"}],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_before_anything_is_started(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(UsageError, match=f"^{name} is "):
        Launcher(**wrong)
