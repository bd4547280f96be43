from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lattice import __version__
from lattice.cli import CLUSTER_COMMANDS, JOB_COMMANDS, main, run
from lattice.core.spec import AgentSpec
from lattice.errors import LatticeError
from tests.waiting import patience


class Recorder:
    """Stands where the agent would run."""

    def __init__(self, code: int = 0, error: BaseException | None = None) -> None:
        self.specs: list[AgentSpec] = []
        self.code, self.error = code, error

    def __call__(self, spec: AgentSpec) -> int:
        self.specs.append(spec)
        if self.error:
            raise self.error
        return self.code


@pytest.fixture(autouse=True)
def no_options_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("LATTICE_", "PET_")):
            monkeypatch.delenv(name)


def lattice(*words: str, module: str = "lattice") -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", module, *words]
    return subprocess.run(line, capture_output=True, text=True, timeout=patience(60), check=False)


def test_run_hands_the_specification_to_the_agent_and_returns_its_code() -> None:
    recorder = Recorder(137)
    assert main(["run", "--max_restarts", "2", "sh", "-c", "true"], recorder) == 137
    (spec,) = recorder.specs
    assert spec.command.argv[1:] == ("-c", "true")
    assert (spec.framework, spec.policy.max_restarts) == ("generic", 2)


def test_torch_run_is_run_and_torchrun_differs_in_the_framework() -> None:
    recorder = Recorder()
    assert run(["--rdzv_id", "a", "sh"], recorder) == main(["run", "--rdzv_id", "a", "sh"], recorder) == 0
    assert recorder.specs[0] == recorder.specs[1]
    main(["torchrun", "--rdzv_id", "a", "sh"], recorder)
    assert recorder.specs[2].framework == "pytorch"


def test_variables_of_this_process_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setenv("LATTICE_RDZV_ID", "from-variable")
    monkeypatch.setenv("LATTICE_ENTRYPOINT", "sh")
    assert main(["run"], recorder) == 0
    assert recorder.specs[0].run_id == "from-variable"


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["run"], 2, "lattice: no entry point"),
        (["run", "--nnodes", "x", "sh"], 2, "lattice: --nnodes (LATTICE_NNODES) is 'x'"),
        (["run", "--nnods", "2", "sh"], 2, "lattice: unknown option --nnods; did you mean --nnodes"),
        (["run", "no-such-script.py"], 2, "lattice: entry point 'no-such-script.py' not found"),
        (["rum"], 2, "lattice: unknown command 'rum'"),
        (["help", "rum"], 2, "lattice: unknown command 'rum'"),
        (["etcd", "--port", "x"], 2, "lattice: --port is 'x'; accepted: a port from 1 to 65535"),
        (["etcd", "extra"], 2, "lattice: lattice etcd takes no argument 'extra'"),
    ],
)
def test_a_users_error_is_one_line_and_a_code(
    words: list[str], code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words, Recorder()) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(line)
    assert shown.err.count("\n") == 1


def test_errors_of_the_agent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "sh"], Recorder(error=LatticeError("no answer"))) == 1
    assert capsys.readouterr().err == "lattice: no answer\n"
    assert main(["run", "sh"], Recorder(error=KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == ""
    assert main(["run", "sh"], Recorder(error=RuntimeError("odd"))) == 70
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "RuntimeError: odd" in shown
    assert "please report it" in shown


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (["--help"], "usage: lattice COMMAND"),
        (["help"], "usage: lattice COMMAND"),
        (["help", "run"], "usage: lattice run"),
        (["run", "-h"], "usage: lattice run"),
        (["torchrun", "--nnodes", "2", "--help"], "usage: lattice torchrun"),
        (["etcd", "--help"], "usage: lattice etcd"),
        (["version"], f"lattice {__version__}\n"),
        (["--version"], f"lattice {__version__}\n"),
        (["run", "--version"], f"lattice {__version__}\n"),
        (["etcd", "--version"], f"lattice {__version__}\n"),
    ],
)
def test_help_and_version(words: list[str], start: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words, Recorder()) == 0
    assert capsys.readouterr().out.startswith(start)


@pytest.mark.parametrize("name", [*JOB_COMMANDS, *CLUSTER_COMMANDS, "image"])
def test_every_command_about_jobs_explains_itself_and_is_in_the_docs(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["help", name], Recorder()) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: lattice {name}")
    assert max(map(len, said.splitlines())) < 80
    page = (Path(__file__).parents[1] / "docs" / "jobs.md").read_text()
    assert f"`lattice {name} " in page or f"`lattice {name}`" in page


def test_no_command_at_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], Recorder()) == 2
    assert "usage:" in capsys.readouterr().err


def test_the_real_commands() -> None:
    assert lattice("version").stdout == f"lattice {__version__}\n"
    by_module = lattice("--version", module="lattice.torch.run")
    assert (by_module.returncode, by_module.stdout) == (0, f"lattice {__version__}\n")
    wrong = lattice("--nnodes", "0", "x", module="lattice.torch.run")
    assert wrong.returncode == 2
    assert "LATTICE_NNODES" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_help_needs_none_of_the_heavy_parts() -> None:
    code = "import sys; from lattice.cli import main; main(['run', '--help']); print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(shown.splitlines()[-1].split())
    assert not loaded & {"torch", "numpy", "grpc", "asyncio", "subprocess", "socket", "lattice.agent.run"}


def test_a_reader_that_goes_away_is_no_fault() -> None:
    line = f"{sys.executable} -c 'import sys; from lattice.cli import main; sys.exit(main([\"help\"]))' | true"
    ended = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=patience(60), check=False)
    assert ended.stderr == ""


def test_importing_the_module_runs_nothing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", "import lattice.torch.run, lattice.__main__"], check=True, cwd=tmp_path)
