"""Words of the user that make no sense, and a home that cannot be used, are one line and the exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from lattice.cli import main
from lattice.errors import UsageError
from lattice.jobs.desk import desk
from lattice.petctl import main as petctl


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LATTICE_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.parametrize(
    ("words", "home"),
    [
        (["submit", "--name", "a", "train.py"], "/proc/x"),
        (["submit", "--name", "a", "train.py"], "train.py"),
        (["status"], "train.py"),
        (["status", "a"], "train.py"),
        (["forget", "a"], "/proc/x"),
    ],
)
def test_a_home_that_cannot_be_used(
    words: list[str], home: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LATTICE_HOME", home)
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"lattice: {home}/jobs cannot be used: ") and "LATTICE_HOME" in line


def test_a_home_that_a_host_cannot_use(here: Path) -> None:
    with pytest.raises(UsageError, match=r"/nodes/a-1 cannot be used: Not a directory; .* LATTICE_HOME"):
        desk(here / "train.py", "a-1", 0).create({}, None)


def test_digits_of_another_script_are_no_number_of_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", "x", "\u00b2"]) == 2
    assert "a number of nodes" in capsys.readouterr().err


def test_only_a_cluster_can_be_meant_by_an_installation(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--gpu", "--dry_run"]) == 0
    assert "nvidia-device-plugin" in capsys.readouterr().out
    assert main(["install", "--gpu", "--dry_run", "--on", "aws"]) == 2
    assert "lattice install is for --on kubernetes" in capsys.readouterr().err


def test_petctl_remembers_settings_or_says_that_it_does_not(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run_job", "--size", "1", "--name", "a", "train.py"]
    (here / "home").mkdir()
    (here / "home" / "petctl.json").write_text("[]")
    assert petctl(run) == 2
    assert "petctl.json holds no settings; write it anew: petctl configure" in capsys.readouterr().err


def test_petctl_in_a_home_that_cannot_be_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LATTICE_HOME", "train.py")
    assert petctl(["run_job", "--size", "1", "--name", "a", "train.py"]) == 2
    assert "train.py cannot be used: Not a directory" in capsys.readouterr().err
