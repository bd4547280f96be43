"""``lattice launch`` as a shell runs it: a program in a folder of its own, in the folder of somebody's module."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lattice import launch_command
from lattice.launching.result import LaunchResult
from lattice.options.help import WIDTH
from tests.agents import ROOT, alive, clean_environment
from tests.launching.conftest import no_leaks
from tests.launching.transports.sshd import server
from tests.waiting import eventually, patience

__all__ = ["no_leaks"]

# Without progress: a busy machine may take so long that there is some to show.
QUICK = ("--backend", "none", "--framework", "generic", "--workers-per-host", "2", "--no-progress")
WITHIN = 120.0
PROGRAM = "import sys\nfrom lattice.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
MODULE = '''
import os, subprocess, sys, time
from pathlib import Path
from typing import Literal

RANK = int(os.environ.get("LATTICE_RANK", -1))

def train(epochs: int, rate: float = 0.1, *, shuffle: bool = True, mode: Literal["a", "b"] = "a"):
    """Train, in epochs."""
    print("worker says", sys.argv[1:])
    return RANK, epochs, rate, shuffle, mode

def fail(unlucky: int):
    if RANK == unlucky:
        raise LookupError("not here\\nnor there")
    time.sleep(600)

class Ending(BaseException): ...

def end():
    raise Ending("over")

def nothing(): ...

def odd():
    return {1: float("nan"), "path": Path("x"), "text": "\\u00e4\\udcff"}

def leave(code: int):
    if RANK:
        time.sleep(600)
    sys.exit(code)

def kill(number: int):
    if RANK:
        time.sleep(600)
    os.kill(os.getpid(), number)

def sleep(folder: Path):
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    said = f"{os.getpid()} {os.getppid()} {child.pid}"
    (folder / f"{RANK}.new").write_text(said)
    (folder / f"{RANK}.new").rename(folder / str(RANK))
    time.sleep(600)

class Trainer:
    def fit(self, count: int):
        return "x" * count
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give the folder in which commands are run; the program is elsewhere."""
    (programs := tmp_path / "bin").mkdir()
    (programs / "lattice").write_text(PROGRAM)
    (here := tmp_path / "project").mkdir()
    (here / "job.py").write_text(MODULE)
    return here


def begin(folder: Path, *words: str, **more: Any) -> subprocess.Popen[str]:
    environ = {**clean_environment(), "LATTICE_LOG_DIR": str(folder.parent / "logs")}
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
    line = [sys.executable, str(folder.parent / "bin" / "lattice"), "launch", *words]
    return subprocess.Popen(line, cwd=folder, env=environ, stdin=subprocess.DEVNULL, text=True, **streams)


def launch(folder: Path, *words: str, **more: Any) -> tuple[int, str, str]:
    """Run the command to its end, and give exit code, output and errors."""
    with begin(folder, *words, **more) as running:
        try:
            out, err = running.communicate(timeout=patience(WITHIN))
        finally:
            running.kill()
    return running.returncode, out or "", err or ""


def test_arguments_arrive_and_each_rank_is_a_line(folder: Path) -> None:
    code, out, err = launch(folder, "job:train", *QUICK, "--", "3", "--no-shuffle", "--mode", "b")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "[localhost:0] worker says ['3', '--no-shuffle', '--mode', 'b']",
        "localhost[0] rank 0: (0, 3, 0.1, False, 'b')",
        "localhost[1] rank 1: (1, 3, 0.1, False, 'b')",
    ]


def test_a_file_elsewhere_as_json_with_nothing_else_in_it(folder: Path) -> None:
    (elsewhere := folder / "deep" / "er").mkdir(parents=True)
    (elsewhere / "other.py").write_text("import beside\nprint('imported')\ndef f(x: int = 1): return beside.Y + x\n")
    (elsewhere / "beside.py").write_text("Y = 40\n")
    hosts = ("--hostnames=localhost,localhost", "--workers_per_host", "1,2")
    code, out, err = launch(folder, "deep/er/other.py:f", *QUICK, *hosts, "--json", "--", "2")
    assert (code, err) == (0, "imported\n[localhost:0] imported\n"), "what is printed goes elsewhere"
    found = [json.loads(line) for line in out.splitlines()]
    assert found == [
        {"rank": rank, "host": "localhost", "local_rank": local_rank, "result": 42}
        for rank, local_rank in enumerate((0, 0, 1))
    ]


def test_hosts_by_ssh(folder: Path, tmp_path: Path) -> None:
    with server(tmp_path / "sshd") as up:
        (config := tmp_path / "config").write_text(up.host_block("one") + up.host_block("two"))
        (python := tmp_path / "python").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}/src exec {sys.executable} "$@"\n')
        python.chmod(0o755)
        where = ("--hostnames", "one", "two", "--ssh-config-file", str(config), "--python", str(python))
        code, out, err = launch(folder, "job.py:Trainer.fit", *QUICK, *where, "--workers-per-host", "1", "--", "2")
    assert (code, err) == (0, "")
    assert out.splitlines() == ["one[0] rank 0: 'xx'", "two[0] rank 1: 'xx'"]


def test_results_can_be_kept(folder: Path) -> None:
    code, out, err = launch(folder, "job:Trainer.fit", *QUICK, "--output", "kept", "--", "3000")
    assert (code, err) == (0, "")
    assert out.startswith("localhost[0] rank 0: 'xxx") and "(3002 characters; --json or --output gives all)" in out
    with (folder / "kept").open("rb") as file:
        kept = pickle.load(file)
    assert isinstance(kept, LaunchResult) and kept.all() == ["x" * 3000] * 2
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == ["job.py", "kept"]


def test_results_that_are_not_plain() -> None:
    class Unshowable:
        def __repr__(self) -> str:
            raise RuntimeError

    circle: list[object] = []
    circle.append(circle)
    values = [None, 1.5, float("nan"), {(1, 2): 3}, Path("x"), Unshowable(), circle, "a\nb"]
    result = LaunchResult([("h", values)])
    plain = list(launch_command.lines(result, as_json=False))
    assert plain == [
        "h[1] rank 1: 1.5",
        "h[2] rank 2: nan",
        "h[3] rank 3: {(1, 2): 3}",
        "h[4] rank 4: PosixPath('x')",
        "h[5] rank 5: <test_results_that_are_not_plain.<locals>.Unshowable whose repr raised RuntimeError>",
        "h[6] rank 6: [[...]]",
        "h[7] rank 7: 'a\\nb'",
    ]
    as_json = [json.loads(line)["result"] for line in launch_command.lines(result, as_json=True)]
    assert as_json[:5] == [None, 1.5, "nan", "{(1, 2): 3}", "PosixPath('x')"]
    assert as_json[6:] == ["[[...]]", "a\nb"]


def test_none_is_not_worth_a_line_and_odd_texts_are_printed(folder: Path) -> None:
    assert launch(folder, "job:nothing", *QUICK) == (0, "", "")
    code, out, err = launch(folder, "job:odd", *QUICK)
    assert (code, err) == (0, "")
    assert "PosixPath('x')" in out and "\\udcff" in out


@pytest.mark.parametrize("unlucky", [0, 1])
def test_an_exception_is_shown_once_with_its_traceback(folder: Path, unlucky: int) -> None:
    code, out, _ = launch(folder, "job:fail", *QUICK, "--", str(unlucky), stderr=subprocess.STDOUT)
    assert code == 1
    assert out.count("Traceback") == 1 and out.count("in fail") == 1
    assert "launch_command" not in out and "notes" not in out
    last = out.splitlines()[-1]
    assert last.startswith(f"lattice: rank {unlucky} on localhost (pid ")
    assert "raised LookupError: not here" in last
    assert last.endswith("(its traceback is above)") == (unlucky == 0), "the first worker's output is shown as it comes"


def test_errors_alone_tell_all(folder: Path) -> None:
    code, _, err = launch(folder, "job:end", *QUICK)
    assert code == 1
    where, _, told = err.partition("\n")
    assert where.startswith("lattice: logs of all agents and workers: ")
    assert told.startswith("Traceback") and "raised Ending: over" in told.splitlines()[-1]
    code, _, err = launch(folder, "job:fail", *QUICK, "--", "0")
    assert code == 1
    told = err.partition("\n")[2]
    assert told.startswith("Traceback") and "LookupError: not here\nnor there\nlattice: rank 0 on" in told


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("job:leave", "--", "7"), 7, r"called sys.exit(7)"),
        (("job:leave", "--", "0"), 1, r"called sys.exit(0)"),
        (("job:kill", "--", "9"), 137, "was killed by SIGKILL"),
        (("job:sleep", "--run-timeout", "0.1", "--", "."), 1, "did not end within 0.1s"),
        (("job:nothing", "--python", "/no/python"), 1, "lattice: no agent on localhost: /no/python cannot be executed"),
    ],
)
def test_every_other_end_is_a_line_and_a_code(folder: Path, words: tuple[str, ...], code: int, says: str) -> None:
    ended, _, err = launch(folder, words[0], *QUICK, *words[1:])
    assert ended == code
    assert says in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "no function was given: write MODULE:FUNCTION"),
        (("--hostnames", "a", "job:train"), "no function was given"),
        (("job:train",), "job:train: --epochs is missing; give --epochs INT"),
        (("job:train", "--", "x"), "job:train: --epochs is 'x'; accepted: a whole number"),
        (
            ("job:train", "--epochs", "3"),
            "unknown option --epochs (lattice launch --help lists all; the function's own",
        ),
        (("job:train", "3"), "there is nothing that '3' could be for (lattice launch --help lists all; the function's"),
        (("job:train", "--", "3", "--x", "1"), "unknown option --x (lattice launch job:train -- --help shows its"),
        (("job:tain",), "job has no 'tain'; did you mean train?"),
        (("job:nothing", "--host", "a"), "unknown option --host; did you mean --min-hosts or --hostnames?"),
        (("job:nothing", "--timeout", "soon"), "--timeout is 'soon'; accepted: a whole number"),
        (("job:nothing", "--timeout", "0"), "timeout is 0: give a number from 1."),
        (("job:nothing", "--backend", "tcp"), "--backend is 'tcp'; accepted: nccl, gloo, mpi, ucc or auto, or none"),
        (("job:nothing", "--workers-per-host", "1,x"), "--workers-per-host is '1,x'"),
        (("job:nothing", "--workers-per-host", "0"), "workers_per_host is 0"),
        (
            ("job:nothing", "--hostnames", "localhost", "--min-hosts", "2"),
            "min_hosts must be 1 to 1, the number of hosts, not 2",
        ),
        (("job:nothing", "--framework", "foo"), "framework is 'foo': give one of generic, pytorch"),
        (("job:nothing", "--log-handlers", "auto"), "unknown option --log-handlers"),
        (("job:nothing", "--output", "no/folder"), "--output is 'no/folder': no file can be written there"),
    ],
)
def test_a_wrong_command_starts_nothing(folder: Path, words: tuple[str, ...], says: str) -> None:
    code, out, err = launch(folder, *words)
    assert (code, out) == (2, "")
    assert err.startswith("lattice: ") and says in err and err.count("\n") == 1
    assert not (folder.parent / "logs").exists()


def test_a_broken_module_shows_its_own_traceback(folder: Path) -> None:
    (folder / "broken.py").write_text("import not_there_at_all\n")
    code, _, err = launch(folder, "broken:f")
    assert code == 1
    assert "import not_there_at_all" in err and err.count("File ") == 1
    assert err.endswith("lattice: broken could not be imported: see above\n")


def test_help(folder: Path) -> None:
    code, out, _ = launch(folder, "--help")
    assert code == 0
    assert max(map(len, out.splitlines())) <= WIDTH
    assert (
        "--workers-per-host INT|INT...|auto|cpu|gpu|slurm\n" in out and "--backend nccl|gloo|mpi|ucc|auto|none\n" in out
    )
    assert "log-handlers" not in out
    code, out, _ = launch(folder, "job:train", "--", "--help")
    assert code == 0
    assert "train(epochs: int, rate: float = 0.1, *, shuffle: bool = True" in out
    assert "Train, in epochs." in out and "--shuffle, --no-shuffle" in out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_with_all_that_it_started(folder: Path, number: int, code: int) -> None:
    (said := folder / "said").mkdir()
    with begin(folder, "job:sleep", *QUICK, "--", str(said)) as running:
        try:
            eventually(lambda: {path.name for path in said.iterdir()} == {"0", "1"}, within=WITHIN)
            pids = [int(pid) for path in said.iterdir() for pid in path.read_text().split()]
            assert len(pids) == 6 and all(map(alive, pids))
            running.send_signal(number)
            _, err = running.communicate(timeout=patience(WITHIN))
            assert running.returncode == code
            assert "Traceback" not in err
            eventually(lambda: not any(map(alive, pids)))
        finally:
            running.kill()


def test_it_is_known_to_the_command_line() -> None:
    line = [sys.executable, "-m", "lattice", "help"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    shown = [
        subprocess.run(
            [*line, *more], env=environ, capture_output=True, text=True, timeout=patience(WITHIN), check=True
        ).stdout
        for more in ((), ("launch",))
    ]
    assert "lattice launch train:main" in shown[0]
    assert shown[1].startswith("usage: lattice launch MODULE:FUNCTION")
