"""What travels, and what does not: changes, damage, full disks, odd names, hosts that share, hosts that are lost."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lattice
from lattice.errors import LatticeError
from lattice.launching.channel import Channel, Kind
from lattice.launching.sync.delivery import deliver
from lattice.launching.sync.snapshot import Snapshot, take
from lattice.process.guard import read_processes
from tests.launching.sync.far import Far, environ, far_hosts, write
from tests.waiting import eventually

pytestmark = pytest.mark.lab  # hosts with folders of their own: mount namespaces

LARGE = 3_000_000


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    folder = tmp_path_factory.mktemp("far")
    with far_hosts(folder / "hosts", folder / "projects", "one", "two") as up:
        yield up


@pytest.fixture
def project(far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project that is the working directory, and on the module search path."""
    folder = write(far.hidden / tmp_path.name, {"part.py": "VALUE = 1\n", "notes.txt": "abc"})
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caller-cache"))
    yield folder
    shutil.rmtree(folder)
    for host in far.servers:
        shutil.rmtree(far.cache(host) / "lattice", ignore_errors=True)


class Traffic:
    """Counts the bytes of contents that leave this process."""

    def __init__(self) -> None:
        self.sent = 0
        self.begun = threading.Event()

    def take(self) -> int:
        sent, self.sent = self.sent, 0
        return sent


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    counted = Traffic()
    send = Channel.send

    def counting(self: Channel, kind: Kind, body: bytes | memoryview = b"") -> None:
        send(self, kind, body)
        if kind == Kind.CONTENT:
            counted.sent += len(body) - 32
            counted.begun.set()

    monkeypatch.setattr(Channel, "send", counting)
    return counted


def value() -> int:
    return int(importlib.import_module("part").VALUE)


def agent_and_value() -> tuple[int, int]:
    return os.getppid(), value()


def test_a_second_launch_sends_nothing_and_a_change_travels_alone(far: Far, project: Path, traffic: Traffic) -> None:
    settings = far.settings("one", "two")
    assert lattice.launch(value, sync=project, **settings).all() == [1, 1]
    assert traffic.take() == 2 * len("VALUE = 1\nabc")
    assert lattice.launch(value, sync=project, **settings).all() == [1, 1]
    assert traffic.take() == 0
    write(project, {"part.py": "VALUE = 22\n", "copy.txt": "abc"})
    assert lattice.launch(value, sync=project, **settings).all() == [22, 22]
    assert traffic.take() == 2 * len("VALUE = 22\n")
    eventually(lambda: not [*far.temporary("one").iterdir(), *far.temporary("two").iterdir()])


def read(*names: str) -> list[str | None]:
    return [Path(name).read_text() if Path(name).exists() else None for name in names]


def spoil() -> None:
    Path("notes.txt").write_text("xyz")  # the same size
    Path("mine.txt").write_text("kept")


def test_a_pool_sends_what_changed_and_puts_right_what_workers_changed(
    far: Far, project: Path, traffic: Traffic
) -> None:
    write(project, {"package/__init__.py": "", "package/old.py": ""})
    with lattice.Launcher(sync=project, **far.settings("one")) as pool:
        agent, first = pool.run(agent_and_value).rank(0)
        traffic.take()
        # The same size within the same second: what Python has compiled looks as if it were still right.
        write(project, {"part.py": "VALUE = 2\n"})
        assert first == 1 and pool.run(agent_and_value).rank(0) == (agent, 2), "by the same agent"
        assert traffic.take() == len("VALUE = 2\n")
        pool.run(spoil)
        shutil.rmtree(project / "package")
        names = ("notes.txt", "mine.txt", "package")
        assert pool.run(read, *names).rank(0) == ["abc", "kept", None]
        assert traffic.take() == 0, "the store was not spoilt"


def preloaded() -> int | None:
    part = sys.modules.get("part")
    return None if part is None else int(part.VALUE)


def test_a_preloaded_module_that_changed_is_imported_anew(
    far: Far, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(project))
    with lattice.Launcher(sync=project, preload="part", **far.settings("one")) as pool:
        # The first may be started before the import is done.
        assert eventually(lambda: pool.run(preloaded).rank(0)) == 1
        write(project, {"part.py": "VALUE = 2\n"})
        assert eventually(lambda: pool.run(preloaded).rank(0)) == 2


def test_damaged_contents_are_noticed_and_sent_again(far: Far, project: Path, traffic: Traffic) -> None:
    settings = far.settings("one")
    lattice.launch(value, sync=project, **settings)
    traffic.take()
    contents = {path.stat().st_size: path for path in far.contents("one")}
    contents[10].write_bytes(b"VALUE = 9\n")
    contents[3].write_bytes(b"")
    assert lattice.launch(value, sync=project, **settings).all() == [1]
    assert traffic.take() == 13
    assert sorted(path.read_bytes() for path in far.contents("one")) == [b"VALUE = 1\n", b"abc"]


def test_agents_that_share_a_cache_are_sent_a_project_once(far: Far, project: Path, traffic: Traffic) -> None:
    assert lattice.launch(value, sync=project, **far.settings("one", "one", "one")).all() == [1, 1, 1]
    assert traffic.take() == 13


def everything() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for folder, _, names in os.walk("."):
        for name in names:
            path = Path(folder, name)
            if "__pycache__" not in path.parts:
                link = str(path.readlink()) if path.is_symlink() else None
                found[str(path)] = (link, link or path.read_bytes(), not link and os.access(path, os.X_OK))
    return found


def test_names_of_any_bytes_links_and_permissions(far: Far, project: Path) -> None:
    odd = os.fsdecode(b"a\xff\n' \".txt")
    write(project, {odd: b"\x00\xff", f"deep/{odd}/x": "y", "run.sh": "#!/bin/sh\n", "empty": "", "-n": "dash"})
    (project / "run.sh").chmod(0o755)
    (project / "notes.txt").chmod(0o444)
    (project / "near").symlink_to("notes.txt")
    (project / "deep" / "absolute").symlink_to(project / "notes.txt")
    (project / "out").symlink_to("/nowhere/at all")
    expected = everything()
    expected["deep/absolute"] = ("../notes.txt", "../notes.txt", False)
    assert lattice.launch(everything, sync=project, **far.settings("one")).rank(0) == expected


@pytest.mark.parametrize("enough", [False, True])
def test_a_full_disk_is_named_and_nothing_is_left(enough: bool, tmp_path: Path) -> None:
    hidden = tmp_path / "projects"
    with far_hosts(tmp_path / "hosts", hidden, "wide", "full", small={"full": "64k"}) as up:
        project = write(hidden / "mine", {"weights": os.urandom(300_000)})
        settings = up.settings("wide", "full")
        if enough:
            result = lattice.launch(os.getpid, sync=project, min_hosts=1, **settings)
            assert list(result.results) == ["wide"]
        else:
            with pytest.raises(lattice.AgentFailedError, match=r"to full: there is no space left.* 300 kB") as told:
                lattice.launch(os.getpid, sync=project, **settings)
            assert told.value.host == "full" and "TMPDIR" in str(told.value)


def deliver_to(
    pool: lattice.Launcher,
    snapshot: Snapshot,
    again: Callable[[], Snapshot],
    said: Callable[[str], None] = print,
    cancelled: threading.Event | None = None,
) -> tuple[Snapshot, dict[str, int]]:
    crew = pool._crew
    assert crew is not None
    return deliver(crew, snapshot, again, len(crew.hosts), say=said, cancelled=cancelled or threading.Event())


def test_files_that_change_while_they_are_sent(far: Far, project: Path) -> None:
    with lattice.Launcher(**far.settings("one", "two")) as pool:
        before = take(project)
        write(project, {"part.py": "VALUE = 5\n"})
        (project / "notes.txt").unlink()
        after, sent = deliver_to(pool, before, lambda: take(project))
        assert "notes.txt" not in after.manifest.entries
        assert sent == {"one": 10, "two": 10}
        pool.sync = project
        assert pool.run(value).all() == [5, 5]

        def restless() -> Snapshot:
            write(project, {"part.py": f"VALUE = {os.urandom(3).hex()!r}\n"})
            taken = take(project)
            write(project, {"part.py": "VALUE = 8\n"})
            return taken

        with pytest.raises(LatticeError, match=r"part\.py in .* changes all the time"):
            deliver_to(pool, restless(), restless)
        assert pool.run(value).all() == [8, 8]


def test_what_is_appended_meanwhile_does_not_matter(far: Far, project: Path) -> None:
    with lattice.Launcher(**far.settings("one")) as pool:
        before = take(project)
        with (project / "notes.txt").open("a") as log:
            log.write("more")
        deliver_to(pool, before, lambda: take(project))
    assert b"abc" in [path.read_bytes() for path in far.contents("one")]


def test_a_launch_that_is_cancelled_while_it_sends(far: Far, project: Path, traffic: Traffic) -> None:
    write(project, {"weights": os.urandom(LARGE)})
    with lattice.Launcher(**far.settings("one")) as pool:
        with pytest.raises(InterruptedError):
            deliver_to(pool, take(project), lambda: take(project), cancelled=traffic.begun)
        assert not [path for path in far.contents("one") if path.stat().st_size == LARGE]
        pool.sync = project
        assert pool.run(value).all() == [1], "the next one is not disturbed"
        assert [path for path in far.contents("one") if path.stat().st_size == LARGE]
        assert not [path for path in far.contents("one") if path.suffix], "nothing half of it"


@pytest.mark.parametrize("lost", ["two", "localhost"])
def test_a_host_that_is_lost_while_a_project_is_sent_is_named(
    lost: str, far: Far, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, {"weights": os.urandom(LARGE)})
    send = Channel.send
    killed = threading.Event()

    def deadly(self: Channel, kind: Kind, body: bytes | memoryview = b"") -> None:
        if kind == Kind.CONTENT and not killed.is_set():
            killed.set()
            # What holds the connection, or the agent itself.
            above = far.servers["two"].pid if lost == "two" else os.getpid()
            for process in [process for process in read_processes() if process.parent == above]:
                words = Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
                if lost == "two" or words[1:3] == [b"-m", b"lattice.launching.node"]:
                    os.kill(process.pid, signal.SIGKILL)
        send(self, kind, body)

    monkeypatch.setattr(Channel, "send", deadly)
    with pytest.raises(lattice.AgentFailedError, match=f"sent to {lost}: the agent ended unexpectedly"):
        lattice.launch(value, sync=project, **far.settings("two", "localhost"))


def test_a_host_that_does_not_answer_is_given_up(far: Far, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    send = Channel.send

    def deaf(self: Channel, kind: Kind, body: bytes | memoryview = b"") -> None:
        if kind != Kind.MANIFEST:
            send(self, kind, body)

    with lattice.Launcher(sync=project, **far.settings("one")) as pool:
        assert pool._crew is not None
        pool._crew.timeout = 1.0
        monkeypatch.setattr(Channel, "send", deaf)
        with pytest.raises(lattice.AgentFailedError, match=r"sent to one: nothing was heard of it for 1s"):
            pool.run(value)


def test_what_is_going_on_is_said(far: Far, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, {"weights": os.urandom(LARGE), ".env": "TOKEN=1"})
    monkeypatch.setattr("lattice.launching.sync.delivery.SILENT", 0.0)
    said: list[str] = []
    with lattice.Launcher(**far.settings("one")) as pool:
        deliver_to(pool, take(project), lambda: take(project), said.append)
    assert said[0] == f"sync: not sent of {project}: .env (looks like a secret)"
    assert all(line.startswith("sync: ") and "of 3 MB sent to one" in line for line in said[1:-1]) and len(said) > 2
    assert said[-1].startswith("sync: 3 MB sent to one in ")


def test_a_file_of_variables_in_the_project_is_read_there(far: Far, project: Path) -> None:
    write(project, {"variables.sh": "FROM_FILE=here\n"})
    settings = {**far.settings("one"), "env_file": "variables.sh"}
    assert lattice.launch(lambda: os.environ["FROM_FILE"], sync=project, **settings).rank(0) == "here"


LEAVES = """
import os, sys, time
import lattice
from lattice.errors import LatticeError

def wait(mark):
    open(mark, "w").write(os.getcwd())
    time.sleep(600)

lattice.launch(wait, (sys.argv[1],), sync="auto", hostnames=["one"], workers_per_host=1, backend=None,
               framework="generic", log_handlers=None, ssh_config_file=sys.argv[2], python=sys.argv[3])
"""


def test_a_killed_launcher_leaves_no_project_behind(far: Far, project: Path, tmp_path: Path) -> None:
    write(project, {"waits.py": LEAVES})
    mark = tmp_path / "mark"
    words = [sys.executable, "waits.py", str(mark), str(far.config), str(far.python)]
    launcher = subprocess.Popen(words, cwd=project, env=environ(tmp_path))
    try:
        folder = Path(eventually(lambda: mark.exists() and mark.read_text(), within=60) or "")
        assert folder.is_relative_to(far.temporary("one")) and (folder / "part.py").exists()
    finally:
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
    eventually(lambda: not list(far.temporary("one").iterdir()))


def test_a_missing_module_of_the_project_is_told_what_brings_it(far: Far, project: Path) -> None:
    with pytest.raises(ModuleNotFoundError) as missed:
        lattice.launch(value, **far.settings("one"))
    assert f"{project}/part.py is not on one: give sync='auto'" in "\n".join(missed.value.__notes__)
    write(project, {".gitignore": "part.py\n"})
    with pytest.raises(ModuleNotFoundError) as missed:
        lattice.launch(value, sync=project, **far.settings("one"))
    assert f"{project}/part.py was not sent to one" in "\n".join(missed.value.__notes__)


@pytest.mark.parametrize("wrong", [True, 3, "/no/such/folder", "part.py"])
def test_what_cannot_be_sent_is_refused_before_anything_starts(wrong: Any, far: Far, project: Path) -> None:
    with pytest.raises(LatticeError, match=r"sync is .*: give 'auto', a folder, or None") as told:
        lattice.launch(value, sync=wrong, **far.settings("one"))
    assert told.value.exit_code == 2
