"""However a launch ends: the right error, and nothing of it is left: no process, no child of one, no folder."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lattice
from lattice.launching import parcel, supervisor
from tests.agents import ROOT
from tests.launching.staying import Families, start_family
from tests.launching.test_launch import ALONE, Unlucky, rank
from tests.waiting import eventually, patience


@pytest.fixture
def families(tmp_path: Path) -> Families:
    folder = tmp_path / "families"
    folder.mkdir()
    return Families(folder)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, in which nothing may be left."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    eventually(lambda: not list(folder.iterdir()))


def linger(folder: str) -> None:
    """Fail, and be a long time in ending."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    failed = Path(folder, "failed")
    if rank() == 1:
        atexit.register(time.sleep, 600)
        atexit.register(failed.touch)
        raise Unlucky(1, "first of all")
    eventually(failed.exists, within=60)
    raise ValueError("second")


def test_what_several_ranks_raised_at_once_is_all_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="second") as caught:
        lattice.launch(linger, (str(tmp_path),), workers_per_host=2, **ALONE)
    several = caught.value.lattice_failures  # type: ignore[attr-defined]
    assert isinstance(several, ExceptionGroup)
    first, second = several.exceptions
    assert first is caught.value and type(second) is Unlucky and second.number == 1
    assert "rank 0 on localhost" in first.__notes__[0] and "rank 1 on localhost" in second.__notes__[0]
    assert "1 more" in first.__notes__[-1]
    back = parcel.load(memoryview(parcel.dump(caught.value).join()))
    assert back.lattice_failures.exceptions[0] is back, "it travels, out of a launch in a launch"


def test_one_failure_is_a_group_too() -> None:
    with pytest.raises(lattice.WorkerFailedError) as caught:
        lattice.launch(os._exit, (7,), workers_per_host=1, **ALONE)
    assert caught.value.lattice_failures.exceptions == (caught.value,)  # type: ignore[attr-defined]


def first_only(folder: Path, then: str) -> str:
    """Give shell code that is run by the first who comes."""
    return f"if mkdir {folder}/first 2>/dev/null; then {then}; fi\n"


def test_a_host_that_cannot_begin_is_named_at_once_and_the_others_do_not_wait_for_it(tmp_path: Path) -> None:
    file = tmp_path / "variables.sh"
    file.write_text(first_only(tmp_path, "echo there is no such module >&2; exit 3"))
    settings = {**ALONE, "hostnames": ["localhost", "127.0.0.1"], "workers_per_host": 1, "env_file": file}
    handle = lattice.launch(os.getpid, wait=False, **settings)
    with pytest.raises(lattice.AgentFailedError, match="there is no such module") as caught:
        handle.result(patience(60))
    assert caught.value.host in ("localhost", "127.0.0.1")
    assert len(lattice.launch(os.getpid, **settings).all()) == 2


def shell(folder: Path, code: str) -> str:
    """Make an interpreter of shell code."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{code}")
    program.chmod(0o755)
    return str(program)


def test_a_launch_can_be_cancelled_while_hosts_are_started(tmp_path: Path) -> None:
    python = shell(tmp_path, f"touch {tmp_path}/begun; exec sleep 600\n")
    handle = lattice.launch(os.getpid, wait=False, python=python, workers_per_host=1, **ALONE)
    eventually((tmp_path / "begun").exists)
    assert handle.status() == "starting"
    handle.cancel()
    with pytest.raises(InterruptedError):
        handle.result(patience(30))
    assert handle.status() == "cancelled"


def test_a_host_that_says_nothing_does_not_hide_for_long_what_is_wrong_with_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "PATIENCE", 1.0)
    python = shell(tmp_path, first_only(tmp_path, "exec sleep 600") + "echo broken >&2; exit 1\n")
    settings = {**ALONE, "hostnames": ["localhost", "127.0.0.1"], "workers_per_host": 1, "python": python}
    with pytest.raises(lattice.AgentFailedError, match="no agent on 2 hosts") as caught:
        lattice.launch(os.getpid, wait=False, **settings).result(patience(60))
    assert "broken" in str(caught.value) and "no word from" in str(caught.value)


def test_fewer_hosts_than_are_needed_are_refused() -> None:
    with pytest.raises(ValueError, match="min_hosts must be 1 to 1"):
        lattice.launch(os.getpid, workers_per_host=1, min_hosts=2, **ALONE)


def nodes(folder: Path, patch: str) -> str:
    """Make an interpreter whose first node behaves differently, by code that runs before it begins."""
    program = folder / "python"
    program.write_text(
        f"#!{sys.executable}\n"
        "import os, runpy, sys, time\n"
        f"sys.path[:] = {sys.path!r}\n"
        "import lattice.launching.forwarding as forwarding, lattice.launching.node as node\n"
        "sys.executable = " + repr(sys.executable) + "\n"
        "try:\n"
        f"    os.mkdir({str(folder / 'different')!r})\n"
        "except FileExistsError:\n"
        "    pass\n"
        "else:\n" + "".join(f"    {line}\n" for line in patch.splitlines()) + "node.main()\n"
    )
    program.chmod(0o755)
    return str(program)


def test_a_host_lost_with_its_results_is_an_error_not_a_short_result(tmp_path: Path) -> None:
    patch = (
        "forwarding.Forwarder._send_left = lambda *arguments: None\n"
        "forwarding.Forwarder.close = lambda self: os.kill(os.getpid(), 9)"
    )
    settings = {**ALONE, "hostnames": ["localhost", "127.0.0.1"], "workers_per_host": 1}
    with pytest.raises(lattice.AgentFailedError, match="lost after its function had returned"):
        lattice.launch(os.getpid, python=nodes(tmp_path, patch), min_hosts=1, **settings)
    assert len(lattice.launch(os.getpid, python=nodes(tmp_path, patch), **settings).all()) == 2


def end(folder: str, how: Callable[[], object]) -> object:
    start_family(folder)
    return how()


def raise_unlucky() -> None:
    raise Unlucky(13, "sorry")


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("how", "error", "says"),
    [
        (rank, None, ""),
        (raise_unlucky, Unlucky, "sorry: 13"),
        (interrupt, lattice.WorkerFailedError, "ended by KeyboardInterrupt"),
        (lambda: sys.exit(3), lattice.WorkerFailedError, r"sys\.exit\(3\)"),
        (lambda: os._exit(0), lattice.WorkerFailedError, "code 0 and left no result"),
        (lambda: os._exit(7), lattice.WorkerFailedError, "code 7"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), lattice.WorkerFailedError, "SIGKILL"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), lattice.WorkerFailedError, "SIGSEGV"),
        (lambda: os.kill(os.getppid(), signal.SIGKILL), lattice.AgentFailedError, "localhost"),
        (lambda: os.killpg(os.getppid(), signal.SIGKILL), lattice.AgentFailedError, "localhost"),
    ],
    ids=["result", "exception", "interrupt", "sys.exit", "_exit0", "_exit7", "kill", "segfault", "agent", "agents"],
)
def test_each_end_of_a_worker(how: Callable[[], Any], error: Any, says: str, families: Families) -> None:
    if error is None:
        assert lattice.launch(end, (str(families.folder), how), workers_per_host=2, **ALONE).all() == [0, 1]
    else:
        with pytest.raises(error, match=says) as caught:
            lattice.launch(end, (str(families.folder), how), workers_per_host=1, **ALONE)
        assert getattr(caught.value, "host", "localhost") == "localhost"
    families.gone(1)


SCRIPT = """
import sys
import lattice
from lattice.launching import parcel, supervisor
from tests.launching import staying
lattice.launch(getattr(staying, sys.argv[1]), (sys.argv[2],), hostnames=["localhost"], workers_per_host=2,
               backend=None, framework="generic", python=sys.argv[3] or None, log_handlers=None)
"""


@contextlib.contextmanager
def launcher(function: str, families: Families, tmp_path: Path, python: str = "") -> Iterator[subprocess.Popen[str]]:
    """Have a launch in a process of its own."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    argv = [sys.executable, str(script), function, str(families.folder), python]
    with subprocess.Popen(argv, env=environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            families.pids(2)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_launcher(number: int, families: Families, tmp_path: Path) -> None:
    with launcher("stay", families, tmp_path) as process:
        process.send_signal(number)
        _, said = process.communicate(timeout=patience(60))
    assert process.returncode == -number
    assert "Error" not in said
    families.gone(2)


def test_a_node_whose_launcher_falls_silent_ends_although_it_has_much_to_say(
    families: Families, tmp_path: Path
) -> None:
    with launcher("talk", families, tmp_path, nodes(tmp_path, "node.SILENCE = 3.0")) as process:
        process.send_signal(signal.SIGSTOP)  # it neither reads nor writes, and its streams stay open
        families.gone(2)
