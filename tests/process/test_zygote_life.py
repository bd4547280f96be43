"""Forked workers among themselves, and what becomes of them when something else ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from lattice.process import warming
from lattice.process.guard import is_marked, read_process, read_processes
from lattice.process.spawning import Guard
from tests.process.conftest import ended, read_all, read_line
from tests.process.warm import WORKERS, python, settled, stage
from tests.waiting import eventually

WAIT = "import signal\nprint('up', flush=True)\nsignal.pause()\n"


def alive(pid: int) -> bool:
    process = read_process(pid)
    return process is not None and not process.ended


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "lib").mkdir()
    (tmp_path / "own").mkdir()
    return tmp_path / "own" / "main.py"


def test_children_by_every_method_of_multiprocessing(guard: Guard, tmp_path: Path) -> None:
    with stage(guard, python("-u", str(WORKERS / "zygote_children.py"), "x"), tmp_path) as it:
        it.warm_up("multiprocessing")
        cold, warm = it.cold(RANK="1"), it.warm(RANK="1")
    assert cold.exit.code == 0, cold.stderr
    assert warm == cold


def test_chance_is_not_shared(guard: Guard, script: Path) -> None:
    script.write_text(
        "import random, uuid, multiprocessing as m\n"
        "print(random.random(), uuid.uuid4(), bytes(m.current_process().authkey).hex())"
    )
    with stage(guard, python("-u", "main.py"), script.parent) as it:
        it.warm_up("random", "multiprocessing.process")
        one, other = (it.warm().stdout.split() for _ in range(2))
    assert all(a != b for a, b in zip(one, other, strict=True)), (one, other)


def test_the_end_of_one_worker_closes_its_pipes_though_others_go_on(guard: Guard, script: Path) -> None:
    script.write_text("import os, signal\nif os.environ['RANK'] == '1': signal.pause()\n")
    with stage(guard, python("-u", "main.py"), script.parent) as it:
        it.warm_up(spares=2)
        pipes = [os.pipe() for _ in range(2)]
        workers = [it.fork(None, write, write, RANK=str(rank)) for rank, (_, write) in enumerate(pipes)]
        for _, write in pipes:
            os.close(write)
        assert read_all(pipes[0][0]) == b""
        assert ended(workers[0]).code == 0 and workers[1].poll() is None
        workers[1].signal(signal.SIGTERM)
        assert read_all(pipes[1][0]) == b""
        assert ended(workers[1]).signal == signal.SIGTERM
        for read, _ in pipes:
            os.close(read)
        for worker in workers:
            worker.close()


def test_the_script_and_what_lies_beside_it_are_read_anew(guard: Guard, script: Path) -> None:
    script.write_text("import beside; print(1, beside.VALUE)")
    (script.parent / "beside.py").write_text("VALUE = 1")
    with stage(guard, python("-u", "main.py"), script.parent) as it:
        it.warm_up()
        assert it.warm().stdout == b"1 1\n"
        script.write_text("import beside, later; print(2, beside.VALUE, later.VALUE)")
        (script.parent / "beside.py").write_text("VALUE = 22")
        (script.parent / "later.py").write_text("VALUE = 3")
        assert it.warm().stdout == b"2 22 3\n"


def test_a_folder_that_changed_too_quickly_for_its_time_to_tell(guard: Guard, script: Path) -> None:
    script.write_text("import late; print(late.__name__)")
    library = script.parents[1] / "lib"
    (library / "early.py").write_text("")
    with stage(guard, python("-uB", "main.py"), script.parent, PYTHONPATH=str(library)) as it:
        it.warm_up("early")
        listed = library.stat()
        (library / "late.py").write_text("")
        os.utime(library, ns=(listed.st_atime_ns, listed.st_mtime_ns))
        assert it.warm().stdout == b"late\n"


def test_a_zygote_dies_and_comes_back_and_no_worker_notices(guard: Guard, script: Path) -> None:
    script.write_text(WAIT)
    with stage(guard, python("-u", "main.py"), script.parent) as it:
        zygote = it.warm_up()
        read, write = os.pipe()
        worker = it.fork(None, write, write)
        assert read_line(read) == "up"
        os.kill(zygote.pids[0], signal.SIGKILL)

        def noticed() -> bool:
            zygote.handle()
            return not zygote.ready

        eventually(noticed)
        assert zygote.fork(it.environ, it.cwd, None, write, write) is None
        assert "SIGKILL" in zygote.reason
        assert alive(worker.pid) and zygote.deadline is not None
        settled(zygote)
        second = it.fork(None, write, write)
        os.close(write)
        assert read_line(read) == "up"
        for one in (worker, second):
            one.signal(signal.SIGKILL)
            ended(one)
            one.close()
        os.close(read)


def test_a_zygote_that_hangs_is_replaced(guard: Guard, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script.write_text("print('ran')")
    monkeypatch.setattr(warming, "FORK_TIMEOUT", 0.5)
    with stage(guard, python("-u", "main.py"), script.parent) as it:
        zygote = it.warm_up(spares=0)
        os.kill(zygote.pids[0], signal.SIGSTOP)
        read, write = os.pipe()
        assert zygote.fork(it.environ, it.cwd, None, write, write) is None
        assert "did not answer" in zygote.reason
        os.close(write)
        assert read_all(read) == b"", "nobody runs who is not known to run"
        os.close(read)
        monkeypatch.undo()
        settled(zygote)
        assert it.warm().stdout == b"ran\n"


def test_a_waiting_worker_that_dies_is_not_missed(guard: Guard, script: Path) -> None:
    script.write_text("print('ran')")
    with stage(guard, python("-u", "main.py"), script.parent) as it:
        zygote = it.warm_up(spares=1)

        def born() -> bool:
            zygote.handle()
            return len(zygote.pids) == 2

        eventually(born)
        os.kill(zygote.pids[1], signal.SIGKILL)
        eventually(lambda: not alive(zygote.pids[1]))
        assert it.warm().stdout == b"ran\n"


def test_a_sweep_spares_the_zygote_and_those_who_wait(guard: Guard, script: Path) -> None:
    script.write_text("print('ran')")
    with stage(guard, python("-u", "main.py"), script.parent) as it:
        zygote = it.warm_up(spares=2)

        def born() -> bool:
            zygote.handle()
            return len(zygote.pids) == 3

        eventually(born)
        assert guard.sweep(spare=zygote.pids) == ()
        assert all(map(alive, zygote.pids))
        assert it.warm().stdout == b"ran\n"


AGENT = """
import os, signal, sys
from tests.process.warm import settled
from lattice.process.preloading import read_command
from lattice.process.spawning import Guard
from lattice.process.warming import Zygote
environ = {"PATH": os.environ["PATH"], "LATTICE_AGENT": sys.argv[1]}
argv = (sys.executable, "-u", "-c", "import os, time; os.system('setsid sleep 1000 & sleep 1000')")
guard = Guard()
zygote = settled(Zygote(guard, read_command(argv, environ, "/"), environ, "/", "LATTICE_AGENT", (), ("RANK",), 3))
for rank in range(2):
    assert zygote.fork({**environ, "RANK": str(rank)}, "/", None, 2, 2), zygote.reason
print("up", flush=True)
signal.pause()
"""


def test_nobody_outlives_a_killed_agent() -> None:
    incarnation = f"test-{uuid.uuid4()}"
    marker = {f"LATTICE_AGENT={incarnation}".encode()}

    def marked() -> list[int]:
        return [process.pid for process in read_processes() if not process.ended and is_marked(process.pid, marker)]

    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT, incarnation],
        stdout=subprocess.PIPE,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
    )
    with agent:
        assert agent.stdout is not None
        assert agent.stdout.readline() == b"up\n"
        eventually(lambda: len(marked()) >= 2 + 1 + 2 * 3)
        agent.kill()
    eventually(lambda: not marked())
