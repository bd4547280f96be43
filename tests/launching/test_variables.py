"""Which variables go along, and what bash makes of a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lattice.errors import UsageError
from lattice.launching.variables import DEFAULT_PATTERNS, select, source_file, source_text

BASE = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "KEPT": "a b\nc", "GONE": "x", "PWD": "/elsewhere"}


def test_defaults_take_what_training_needs_and_no_more() -> None:
    environ = {
        "PATH": "/bin", "LD_LIBRARY_PATH": "/lib", "PYTHONPATH": "/src", "CUDA_HOME": "/cuda", "NCCL_DEBUG": "INFO",
        "HF_HOME": "/hf", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_HOME": "/t",
        "PYTORCH_CUDA_ALLOC_CONF": "x",
    }  # fmt: skip
    others = {
        "HOME": "/home/me", "AWS_SECRET_ACCESS_KEY": "s", "LATTICE_NNODES": "2", "RANK": "0", "MASTER_PORT": "1",
        "TORCHELASTIC_RUN_ID": "outer", "TF_CONFIG": "{}", "MYPATH": "/x",
    }  # fmt: skip
    assert select({**environ, **others}) == environ


def test_patterns_may_be_replaced_and_added_to() -> None:
    environ = {"PATH": "/bin", "MY_A": "1", "MY_B": "2", "TORCHELASTIC_RUN_ID": "x", "OTHER": "3"}
    assert select(environ, (), ()) == {}
    assert select(environ, ("MY_?",)) == {"MY_A": "1", "MY_B": "2"}
    assert select(environ, DEFAULT_PATTERNS, ["MY_B", "TORCHELASTIC_*"]).keys() == {
        "PATH",
        "MY_B",
        "TORCHELASTIC_RUN_ID",
    }


def test_patterns_that_are_no_strings_are_refused() -> None:
    with pytest.raises(UsageError, match="must be strings"):
        select({}, (), (5,))  # type: ignore[arg-type]


def test_bash_sources_the_file_and_all_variables_arrive(tmp_path: Path) -> None:
    file = tmp_path / "env file.sh"
    file.write_text(
        "plain=1\nexport EXPORTED='two words'\nmulti=$'line\\nline'\nunset GONE\n"
        'if [[ "$KEPT" == a* ]]; then declare SEEN=yes; fi\narray=(1 2)\nf() { :; }\nexport -f f\n'
        "echo shown; echo wrong >&2; set -- other parameters; PATH=/broken; false\n"
    )
    variables, said = source_file({**BASE, "BASH_ENV": "/not/there"}, str(file))
    assert variables["plain"] == "1"
    assert variables["EXPORTED"] == "two words"
    assert variables["multi"] == "line\nline"
    assert variables["KEPT"] == BASE["KEPT"]
    assert variables["SEEN"] == "yes"
    assert variables["PATH"] == "/broken"
    assert variables["PWD"] == "/elsewhere"
    assert variables["BASH_ENV"] == "/not/there"
    assert not {"GONE", "_", "SHLVL"} & variables.keys()
    assert not [name for name in variables if "%%" in name]
    assert said == "shown\nwrong\n"


def test_a_file_of_another_host_is_sourced_from_its_text() -> None:
    variables, said = source_text(BASE, 'A=b"\'c"\nB=$A')
    assert variables["B"] == "b'c"
    assert said == ""
    assert variables.keys() - BASE.keys() == {"A", "B"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [("if true\n", "syntax error"), ("echo dear; exit 3", "code 3.*\n.*dear"), ("set -e; false; A=1", "code 1")],
)
def test_errors_of_the_file_are_shown(tmp_path: Path, text: str, shown: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(UsageError, match=f"(?s){shown}"):
        source_file(BASE, str(tmp_path / "file"))


def test_what_goes_wrong_within_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no_such_command\nA=1\n")
    variables, said = source_file(BASE, str(tmp_path / "file"))
    assert variables["A"] == "1"
    assert "no_such_command: command not found" in said


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothere cannot be read on this host"):
        source_file(BASE, str(tmp_path / "nothere"))


def test_a_file_that_does_not_end_is_ended() -> None:
    with pytest.raises(UsageError, match=r"(?s)did not end within 0\.5s.*begun"):
        source_text(BASE, "echo begun\nwhile :; do :; done", timeout=0.5)
