"""What may be imported ahead, what may not, and who is told."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lattice.process.spawning import Guard
from lattice.process.warming import Zygote
from tests.process.conftest import MARKER
from tests.process.warm import LATE, Stage, python, settled, stage
from tests.waiting import eventually

BAD = {
    "threads": "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
    "device": "import os\nDEVICE = os.open(os.environ['DEVICE'], os.O_RDONLY)",
    "socket_": "import socket\nS = socket.socket()",
    "rank_reader": "import os\nRANK = int(os.environ.get('RANK', 0))",
    "rank_reader2": "import os\nRANK = 'RANK' in os.environ",
    "failing": "raise RuntimeError('no licence')",
    "leaving": "import sys\nsys.exit(3)",
    "crashing": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)",
    "vanishing": "import os\nos._exit(4)",
    "lacking": "import not_there_at_all",
    "own_importer": "import beside",
}
REASONS = {
    "threads": "starts a native thread",
    "device": "nvidia0 open",
    "socket_": "socket:",
    "rank_reader": "reads RANK while it is imported",
    "rank_reader2": "reads RANK while it is imported",
    "failing": "no licence",
    "leaving": "SystemExit(3)",
    "crashing": "SIGSEGV",
    "vanishing": "exit code 4",
    "lacking": "not_there_at_all",
    "own_importer": "beside.py, which must be read anew",
}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    (tmp_path / "lib").mkdir()
    (tmp_path / "own").mkdir()
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").write_text("")
    for name, text in BAD.items():
        (tmp_path / "lib" / f"{name}.py").write_text(text)
    (tmp_path / "lib" / "good.py").write_text("import os\nPID = os.getpid()")
    (tmp_path / "own" / "beside.py").write_text("")
    (tmp_path / "own" / "main.py").write_text(
        f"import os, sys\nprint(*sorted({ {'good', 'beside', *BAD}!r} & set(sys.modules)))"
    )
    return tmp_path


def opened(guard: Guard, library: Path, **more: str) -> AbstractContextManager[Stage]:
    path = f"{library / 'lib'}:{library / 'own'}"
    return stage(
        guard,
        python("-u", "main.py"),
        library / "own",
        PYTHONPATH=path,
        DEVICE=str(library / "dev" / "nvidia0"),
        **more,
    )


@pytest.mark.parametrize("name", BAD)
def test_a_module_that_spoils_the_zygote_is_named_and_left_out(guard: Guard, library: Path, name: str) -> None:
    with opened(guard, library) as it:
        zygote = it.warm_up("good", name, "nonexistent_module", devices=(str(library / "dev" / "nvidia"),))
        assert zygote.ready, zygote.reason
        assert it.warm().stdout == b"good\n"
        notes = zygote.take_notes()
    assert zygote.facts["threads"] == 1 and zygote.facts["imported"] == ["good"]
    assert [note.split(":")[0] for note in notes] == [f"preload {name}", "preload nonexistent_module"]
    assert REASONS[name] in notes[0] and "not installed" in notes[1]
    assert zygote.take_notes() == ()


def test_with_nothing_left_to_preload_there_is_no_zygote(guard: Guard, library: Path) -> None:
    with opened(guard, library) as it:
        zygote = it.warm_up("failing")
        assert not zygote.ready and zygote.pids == ()
        assert zygote.fork(it.environ, it.cwd, None, 1, 2) is None
        assert zygote.reason == "nothing is left to preload"
        assert "no warm starts" in zygote.take_notes()[-1]


def refused(it: Stage, **changes: str) -> str:
    assert it.zygote is not None
    read, write = os.pipe()
    assert it.zygote.fork({**it.environ, **changes}, it.cwd, None, write, write) is None
    os.close(write)
    assert os.read(read, 1) == b"", "nothing ran"
    os.close(read)
    return it.zygote.reason


def test_another_environment_needs_a_fresh_interpreter(guard: Guard, library: Path) -> None:
    with opened(guard, library) as it:
        it.warm_up("good")
        assert refused(it, OMP_NUM_THREADS="4", RANK="1").endswith("zygote's: OMP_NUM_THREADS")
        assert refused(it, PYTHONPATH="/").endswith(": PYTHONPATH")
        assert it.warm(RANK="1").stdout == b"good\n"


def test_a_changed_package_is_imported_anew(guard: Guard, library: Path) -> None:
    with opened(guard, library) as it:
        zygote = it.warm_up("good")
        assert it.warm().stdout == b"good\n"
        (library / "lib" / "good.py").write_text("VALUE = 2")
        assert "good.py has changed" in refused(it)
        settled(zygote)
        assert it.warm().stdout == b"good\n"
        (library / "lib" / "good.py").write_text("VALUE = 'three'")
        before = zygote.pids
        zygote.check()

        def replaced() -> bool:
            zygote.handle()
            return bool(zygote.pids) and zygote.pids[0] != before[0]

        eventually(replaced)
        settled(zygote)
        assert it.warm().stdout == b"good\n"


def test_a_file_beside_the_script_takes_precedence(guard: Guard, library: Path) -> None:
    with opened(guard, library) as it:
        it.warm_up("good")
        assert it.warm().exit.code == 0
        (library / "own" / "good.py").write_text("")
        assert "good.py takes the place of module good" in refused(it)
        (library / "own" / "good.py").unlink()
        assert it.warm().stdout == b"good\n"


def test_an_interpreter_that_is_none(guard: Guard, tmp_path: Path) -> None:
    for text, reason in (
        ("#!/bin/sh\nexit 3\n", "exit code 3"),
        ("#!/bin/sh\necho no library >&2\nexit 4\n", "exit code 4): no library"),
        (f'#!/bin/sh\nexec {python()[0]} -I "$@"\n', "exit code 0"),
    ):
        (tmp_path / "python").write_text(text)
        (tmp_path / "python").chmod(0o755)
        (tmp_path / "main.py").write_text("import pathlib\npathlib.Path('ran').touch()")
        with stage(guard, (str(tmp_path / "python"), "-u", "main.py"), tmp_path) as it:
            zygote = it.warm_up("json")
            assert not zygote.ready and reason in zygote.reason
        assert not (tmp_path / "ran").exists(), "the script never runs in place of the zygote"
    with stage(guard, (str(tmp_path / "none"), "main.py"), tmp_path) as it:
        assert "No such file" in it.warm_up().reason


def test_a_wrapper_around_the_interpreter(guard: Guard, tmp_path: Path) -> None:
    (tmp_path / "python").write_text(f'#!/bin/sh\nWRAPPED=$WRAPPED+ exec {python()[0]} -B "$@"\n')
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "main.py").write_text("import os, sys\nprint(os.environ['WRAPPED'], sys.orig_argv)")
    with stage(guard, (str(tmp_path / "python"), "-u", "main.py", "x"), tmp_path) as it:
        it.warm_up()
        assert it.warm() == it.cold()


def test_it_starts_without_keeping_anybody_waiting(guard: Guard, library: Path) -> None:
    fifo = library / "fifo"
    os.mkfifo(fifo)
    (library / "lib" / "slow.py").write_text(f"open({str(fifo)!r}).read()")
    with opened(guard, library) as it:
        it.zygote = Zygote(guard, it.command(), it.environ, it.cwd, MARKER, ["good", "slow"], LATE)
        it.zygote.handle()
        assert it.zygote.starting and not it.zygote.ready
        assert refused(it) == "the zygote is not ready yet"
        fifo.write_text("")
        assert settled(it.zygote).ready
        assert it.warm().stdout == b"good\n"
