"""A worker that was forked sees nothing that a fresh one would not see."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lattice.process.spawning import Guard
from tests.process.warm import WORKERS, python, stage

PROBE = WORKERS / "zygote_probe.py"


def compare(cold: bytes, warm: bytes) -> None:
    one, other = (json.loads(re.sub(rb"0x[0-9a-f]+", b"0x", text)) for text in (cold, warm))
    assert {name for name in one if one[name] != other[name]} == set(), {
        name: _difference(one[name], other[name]) for name in one if one[name] != other[name]
    }


def _difference(one: object, other: object) -> object:
    if isinstance(one, list) and isinstance(other, list):
        return [item for item in one if item not in other], [item for item in other if item not in one]
    return one, other


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "pkg" / "inner").mkdir(parents=True)
    (folder / "app").mkdir()
    for place in ("probe.py", "pkg/probe.py", "pkg/inner/__main__.py", "app/__main__.py"):
        shutil.copy(PROBE, folder / place)
    for package in ("pkg", "pkg/inner"):
        (folder / package / "__init__.py").write_text("")
    (folder / "linked.py").symlink_to(folder / "pkg" / "probe.py")
    return folder


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (["-u", "probe.py", "--lr", "1", "two words", ""], {}),
        (["probe.py"], {}),
        (["-u", "pkg/probe.py"], {"PYTHONPATH": "pkg:/nowhere::"}),
        (["-u", "linked.py"], {"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"}),
        (["-u", "-X", "dev", "-W", "error::UserWarning", "-OO", "-B", "probe.py", "-x"], {}),
        (
            ["-uXfaulthandler", "-Wignore", "probe.py"],
            {"PYTHONWARNINGS": "default", "PYTHONIOENCODING": "latin-1:replace"},
        ),
        (["-u", "-P", "probe.py"], {}),
        (["-u", "probe.py"], {"PYTHONSAFEPATH": "1", "LC_ALL": "C", "PYTHONPATH": ""}),
        (["-u", "-s", "--", "probe.py"], {"OPENBLAS_NUM_THREADS": "3", "PYTHONUTF8": "1"}),
        (["-u", "-m", "pkg.probe", "-m", "x"], {}),
        (["-um", "pkg.inner", "x"], {}),
        (["-u", "app", "x"], {}),
        (["-u", "-c", "exec(open('probe.py').read())", "x"], {}),
    ],
)
def test_a_forked_worker_cannot_be_told_from_a_fresh_one(
    guard: Guard, project: Path, words: list[str], environ: dict[str, str]
) -> None:
    with stage(guard, python(*words), project, **environ) as it:
        it.warm_up()
        late = ("3", "ä\udcff", "")
        cold, warm = (start(RANK=late[0], WORLD_SIZE=late[1], MASTER_ADDR=late[2]) for start in (it.cold, it.warm))
    assert cold.exit.status == 0, cold.stderr
    assert warm.exit == cold.exit
    assert warm.stderr == cold.stderr
    compare(cold.stdout, warm.stdout)


def test_nor_can_one_at_a_terminal(guard: Guard, project: Path) -> None:
    for option in ("-u", "-B"):
        with stage(guard, python(option, "probe.py"), project) as it:
            zygote = it.warm_up()
            texts = []
            for warm in (False, True):
                ours, theirs = pty.openpty()
                environ = {**it.environ, "RANK": "0"}
                if warm:
                    worker = zygote.fork(environ, it.cwd, theirs, theirs, theirs)
                else:
                    worker = guard.spawn(it.argv, environ, it.cwd, theirs, theirs, theirs, "LATTICE_AGENT")
                assert worker is not None
                os.close(theirs)
                text = b""
                try:
                    while part := os.read(ours, 65536):
                        text += part
                except OSError:
                    pass  # the way in which a terminal says that nobody is left
                os.close(ours)
                texts.append(text.replace(b"to standard error\r\n", b""))
                os.waitid(os.P_PIDFD, worker.pidfd, os.WEXITED | os.WNOWAIT)
                worker.poll()
                worker.close()
        compare(*texts)


def test_a_sitecustomize_of_the_users_own_runs_in_every_worker(guard: Guard, project: Path) -> None:
    (project / "custom").mkdir()
    (project / "custom" / "sitecustomize.py").write_text("import os; PID = os.getpid(); print('custom', __file__)")
    (project / "show.py").write_text("import os, sitecustomize as s; print(s.PID == os.getpid(), s.__spec__.origin)")
    with stage(guard, python("-u", "show.py"), project, PYTHONPATH="custom") as it:
        it.warm_up()
        cold, warm = it.cold(), it.warm()
    assert cold.stdout.startswith(b"custom ") and b"True" in cold.stdout
    assert (warm.stdout, warm.stderr) == (cold.stdout, cold.stderr)


def test_what_modules_say_while_they_are_imported_every_worker_says(guard: Guard, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "own").mkdir()
    (tmp_path / "lib" / "noisy.py").write_text(
        "import os, sys, warnings\nprint('out')\nwarnings.warn('old')\n"
        "os.system('echo native >&2')\nSTREAM = sys.stderr"
    )
    (tmp_path / "own" / "main.py").write_text(
        "import noisy, sys\nprint('main', file=noisy.STREAM)\nprint(noisy.STREAM is sys.stderr)"
    )
    with stage(guard, python("-u", "main.py"), tmp_path / "own", PYTHONPATH=str(tmp_path / "lib")) as it:
        assert it.warm_up("noisy").facts["imported"] == ["noisy"]
        cold, warm, again = it.cold(), it.warm(), it.warm()
    assert cold.stdout == b"out\nTrue\n" and b"UserWarning: old" in cold.stderr
    assert (warm.stdout, warm.stderr) == (again.stdout, again.stderr) == (cold.stdout, cold.stderr)


def test_a_debugger_has_its_terminal(guard: Guard, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("x = 41\nbreakpoint()\nprint('x is', x)\n")
    with stage(guard, python("-u", "main.py"), tmp_path) as it:
        it.warm_up()
        results = []
        for start in (it.cold, it.warm):
            read, write = os.pipe()
            os.write(write, b"where\nx = 42\ncontinue\n")
            os.close(write)
            results.append(start(stdin=read))
            os.close(read)
    assert b"x is 42" in results[0].stdout
    assert results[0] == results[1]


def interpreters() -> list[str]:
    """Find other versions of Python that work, and the one that the virtual environment was made from."""
    found = [shutil.which(f"python3.{minor}") for minor in range(8, 15)]
    check = "import _ctypes, sys; print(sys.executable)"
    runs = [subprocess.run([path, "-c", check], capture_output=True, text=True, check=False) for path in found if path]
    return sorted({sys._base_executable, *(run.stdout.strip() for run in runs if run.returncode == 0)})  # type: ignore[attr-defined]


def test_other_interpreters(guard: Guard, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import os, sys\nprint(sys.version, sys.argv, sys.flags, sorted(sys.modules), os.environ)\n"
        "print(sys.stdin, sys.stdout, sys.stderr, os.listdir('/proc/self/fd'))\n"
    )
    for interpreter in interpreters():
        with stage(guard, (interpreter, "-u", "main.py", "x"), tmp_path) as it:
            zygote = it.warm_up("json.decoder", spares=0)
            assert zygote.ready, zygote.reason
            warm = it.warm(RANK="1")
            zygote.close()
            it.warm_up(spares=0)
            assert warm.exit.code == 0 and b"json.decoder" in warm.stdout
            assert it.warm(RANK="1") == it.cold(RANK="1")
