from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lattice.core.spec import Command
from lattice.errors import UsageError
from tests.options.machines import Stub, spec


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def executable(path: Path, content: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def command(*words: str, torchrun: bool = False, **variables: str) -> Command:
    return spec(*words, torchrun=torchrun, variables=variables).command


def refused(*words: str, **variables: str) -> str:
    with pytest.raises(UsageError) as caught:
        spec(*words, variables=variables)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("torchrun", [True, False])
def test_a_script_is_run_with_this_interpreter(folder: Path, torchrun: bool) -> None:
    (folder / "train.py").touch()
    found = command("train.py", "--nnodes", "3", "--", "x", "a b", torchrun=torchrun)
    assert found.argv == ("/opt/python", "-u", "train.py", "--nnodes", "3", "--", "x", "a b")
    assert found.display == "train.py --nnodes 3 -- x 'a b'"
    assert found.python


def test_an_executable_script_is_run_with_this_interpreter_too(folder: Path) -> None:
    executable(folder / "train.py", "#!/usr/bin/env python\n")
    assert command("./train.py").argv == ("/opt/python", "-u", "./train.py")
    assert command("--no_python", "./train.py").argv == ("./train.py",)
    assert not command("--no_python", "./train.py").python


def test_a_module() -> None:
    found = command("-m", "package.module", "--flag", "-m")
    assert found.argv == ("/opt/python", "-u", "-m", "package.module", "--flag", "-m")
    assert found.display == "-m package.module --flag -m"
    assert found.python
    assert "LATTICE_MODULE" in refused("-m", "train.py")
    assert "LATTICE_NO_PYTHON" in refused("-m", "--no_python", "x")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", "-u"),
        ("-u", "-u"),
        ("-X dev", "-u -X dev"),
        ("-Xdev -W error", "-u -Xdev -W error"),
        ("-X utf8", "-u -X utf8"),
        ("-Iu", "-Iu"),
        ("-OO -B", "-u -OO -B"),
        ("--check-hash-based-pycs always", "-u --check-hash-based-pycs always"),
    ],
)
def test_an_interpreter_is_told_not_to_buffer(folder: Path, options: str, expected: str) -> None:
    (folder / "train.py").touch()
    executable(folder / "bin/python3.11")
    words = ["python3.11", *options.split(), "train.py", "-u", "--lr", "1"]
    found = command(*words, PATH=f"{folder}/bin")
    assert found.argv == (f"{folder}/bin/python3.11", *expected.split(), "train.py", "-u", "--lr", "1")
    assert found.display == shlex.join(words)
    assert found.python


def test_an_interpreter_with_code_or_a_module(folder: Path) -> None:
    assert command(sys.executable, "-c", "print(1)").argv == (sys.executable, "-u", "-c", "print(1)")
    assert command(sys.executable, "-Im", "nowhere").argv == (sys.executable, "-u", "-Im", "nowhere")
    assert command(sys.executable, "-").argv == (sys.executable, "-u", "-")
    assert "'nowhere.py' not found" in refused(sys.executable, "-X", "dev", "nowhere.py")


def test_python_without_one_in_path_is_this_one(folder: Path) -> None:
    (folder / "train.py").touch()
    assert command("python", "train.py", PATH=str(folder)).argv == ("/opt/python", "-u", "train.py")
    assert "python9" in refused("python9", "train.py", PATH=str(folder))


def test_programs(folder: Path) -> None:
    executable(folder / "binary")
    executable(folder / "bin/tool")
    assert command("./binary", "-x").argv == ("./binary", "-x")
    assert command("tool", "-m", PATH=f"/nowhere:{folder}/bin").argv == (f"{folder}/bin/tool", "-m")
    assert not command("./binary").python


def test_what_cannot_be_run_is_said_with_where_it_was_looked_for(folder: Path) -> None:
    (folder / "data").write_bytes(b"\x7fELF\0")
    (folder / "script.sh").write_text("#!/bin/sh\n")
    (folder / "sub").mkdir()
    assert f"looked for {folder}/train.py" in refused("train.py")
    assert f"looked for {folder}/no/binary" in refused("./no/binary").replace("/./", "/")
    assert "not found in PATH (/nowhere)" in refused("tool", PATH="/nowhere")
    assert "there is" in refused("data", PATH="/nowhere")
    assert "is a directory" in refused("./sub")
    assert "not executable" in refused("./data")
    assert "not executable" in refused("./script.sh")
    assert "not executable" in refused("--no_python", "./script.sh")
    assert "empty word" in refused("")


def test_a_folder_with_a_main_is_a_script(folder: Path) -> None:
    (folder / "app").mkdir()
    (folder / "app/__main__.py").touch()
    assert command("./app").argv == ("/opt/python", "-u", "./app")


def test_a_file_without_a_suffix(folder: Path) -> None:
    (folder / "hashbang").write_text("#!/usr/bin/env python3\n")
    (folder / "test").write_text("print(1)\n")
    assert command("./hashbang").argv == ("/opt/python", "-u", "./hashbang")
    assert "not executable" in refused("./test")
    assert command("test").argv == ("/usr/bin/test",)
    assert command("test", torchrun=True).argv == ("/opt/python", "-u", "test")


def test_torchruns_variable_for_the_interpreter(folder: Path) -> None:
    (folder / "train.py").touch()
    assert command("train.py", torchrun=True, PYTHON_EXEC="/other/python").argv[0] == "/other/python"
    assert command("train.py", PYTHON_EXEC="/other/python").argv[0] == "/opt/python"


def test_the_entry_point_by_variables(folder: Path) -> None:
    (folder / "my train.py").touch()
    found = command(LATTICE_ENTRYPOINT="'my train.py'", LATTICE_ENTRYPOINT_ARGS="--lr '1 2' \"\"")
    assert found.argv == ("/opt/python", "-u", "my train.py", "--lr", "1 2", "")
    found = command(LATTICE_ENTRYPOINT="sh -c", LATTICE_ENTRYPOINT_ARGS="'exit 3'")
    assert found.argv == ("/usr/bin/sh", "-c", "exit 3")
    assert command(LATTICE_ENTRYPOINT="pkg.mod", LATTICE_MODULE="1").argv[-2:] == ("-m", "pkg.mod")


def test_an_entry_point_on_the_command_line_has_its_own_arguments() -> None:
    both = spec("sh", LATTICE_ENTRYPOINT="train.py", LATTICE_ENTRYPOINT_ARGS="--lr 1", LATTICE_RDZV_ID="a")
    assert (both.command.argv, both.notices) == (("/usr/bin/sh",), ())
    (notice,) = spec("sh", LATTICE_ENTRYPOINT_ARGS="--lr 1", LATTICE_RDZV_ID="a").notices
    assert "LATTICE_ENTRYPOINT_ARGS" in notice


def test_no_entry_point() -> None:
    for variables in ({}, {"LATTICE_ENTRYPOINT": " "}, {"LATTICE_ENTRYPOINT_ARGS": "x"}):
        assert "LATTICE_ENTRYPOINT" in refused("--nnodes", "1", **variables)
    assert "no closing quotation" in refused(LATTICE_ENTRYPOINT="'a")
    assert "no option" in refused(LATTICE_ENTRYPOINT="-m x")


ARGUMENTS = st.lists(
    st.one_of(
        st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"])),
        st.sampled_from(["", "--", "--nnodes", "a b", "\n", "'", '"', "\\", "$HOME", "-m", "*", "\t", "ü"]),
    ),
    max_size=6,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ARGUMENTS, st.sampled_from(["script", "python", "variables"]))
def test_arguments_reach_a_real_program_untouched(folder: Path, arguments: list[str], form: str) -> None:
    (folder / "show.py").write_text("import json, sys; print(json.dumps(sys.argv[1:]))")
    machine = Stub()
    machine.interpreter = sys.executable
    if form == "variables":
        variables = {"LATTICE_ENTRYPOINT": "show.py", "LATTICE_ENTRYPOINT_ARGS": shlex.join(arguments)}
        found = spec(machine=machine, variables=variables)
    else:
        words = ["show.py"] if form == "script" else [sys.executable, "show.py"]
        found = spec("--nnodes", "1", *words, *arguments, machine=machine)
    environ = {**os.environ, "PYTHONUTF8": "1"}
    shown = subprocess.run(found.command.argv, capture_output=True, check=True, env=environ).stdout
    assert json.loads(shown) == arguments
    assert shlex.split(found.command.display)[-len(arguments) or 10**9 :] == arguments
