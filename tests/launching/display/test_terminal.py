"""Launches in a real terminal: the screen as the user sees it, while they run and after any end."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.agents import alive
from tests.launching.terminal import Terminal, terminal
from tests.waiting import eventually

SETTINGS = 'hostnames=["localhost"] * 2, workers_per_host=2, backend=None, framework="generic"'
START = f"""
import logging, os, sys, threading, time
from pathlib import Path
import lattice

def wait_for(name):
    while not Path(name).exists():
        time.sleep(0.01)

def work(text="x", until="go"):
    print("first", flush=True)
    wait_for(until)
    for number in range(50):
        print("line", number, text, flush=True)
    print("last", flush=True)

def launch(*args, **settings):
    return lattice.launch(work, args, {SETTINGS}, **settings)

print("before")
"""
BEFORE = ["before", "[localhost:0] first"]
LIVE = "localhost  2 workers, round 1, "


def run(
    script: str, folder: Path, columns: int = 100, lines: int = 24, environ: Mapping[str, str] | None = None
) -> AbstractContextManager[Terminal]:
    return terminal(START + script, folder, columns=columns, lines=lines, environ=environ)


def go(folder: Path, name: str = "go") -> None:
    (folder / name).touch()


def live(shown: Terminal, *, after: str = "first") -> list[str]:
    """Wait for both hosts' lines below a line of text, and give all lines from the first on."""

    def found() -> list[str]:
        lines = shown.all
        below = [line for line in lines[-2:] if line.startswith(LIVE)]
        return lines if len(below) == 2 and lines[-3].endswith(after) else []

    return eventually(found, within=60)


def logged(text: str = "x") -> list[str]:
    return [f"[localhost:0] line {number} {text}" for number in range(50)] + ["[localhost:0] last"]


def test_a_line_per_host_below_the_log_and_nothing_of_it_at_the_end(tmp_path: Path) -> None:
    with run("launch()\nprint('after')", tmp_path) as shown:
        assert live(shown)[:-2] == BEFORE
        eventually(lambda: shown.column == 0)  # whatever comes next begins a line
        go(tmp_path)
        assert shown.end() == 0
        assert shown.all == [*BEFORE, *logged(), "after"]
        assert b"\x1b[?25l" not in shown.written, "the cursor is never hidden"


def test_lines_longer_than_the_terminal_are_whole(tmp_path: Path) -> None:
    text = "abcdefghi " * 21
    with run(f"launch({text!r})", tmp_path, columns=60) as shown:
        live(shown)
        go(tmp_path)
        assert shown.end() == 0
        assert f"[localhost:0] line 49 {text}".encode() in shown.written
        rows = [line for number in range(50) for line in wrapped(f"[localhost:0] line {number} {text}", 60)]
        assert shown.all == [*BEFORE, *rows, "[localhost:0] last"]


def wrapped(line: str, columns: int) -> list[str]:
    return [line[at : at + columns].rstrip() for at in range(0, len(line), columns)]


def test_a_restart_is_shown_where_it_stands(tmp_path: Path) -> None:
    script = """
def fail_once():
    print("first", flush=True)
    if os.environ["LATTICE_ROUND"] == "1":
        wait_for("fail")
        raise RuntimeError("once")
    wait_for("go")

lattice.launch(fail_once, hostnames=["localhost"], workers_per_host=1, backend=None, framework="generic",
               max_restarts=3)
"""
    with run(script, tmp_path) as shown:
        eventually(lambda: shown.screen[-1].startswith("localhost  1 worker, round 1, "), within=60)
        go(tmp_path, "fail")
        eventually(lambda: shown.screen[-1].startswith("localhost  1 worker, round 2 (1 restart), "), within=60)
        eventually(lambda: shown.shows("WARNING lattice: round 2 starts after rank 0"))
        go(tmp_path)
        assert shown.end() == 0
        assert not shown.shows("localhost  1 worker")


def test_a_quick_launch_shows_nothing_but_its_log(tmp_path: Path) -> None:
    go(tmp_path)
    script = "from lattice.launching.display import showing\nshowing.QUIET = 60\nlaunch()"  # this machine may be slow
    with run(script, tmp_path) as shown:
        assert shown.end() == 0
        assert b"\x1b" not in shown.written and b"[lattice]" not in shown.written
        assert shown.all == [*BEFORE, *logged()]


@pytest.mark.parametrize("end", ["Ctrl-C", "SIGTERM", "exception"])
def test_every_end_leaves_a_clean_screen(end: str, tmp_path: Path) -> None:
    script = """
def fail():
    Path(os.environ["LATTICE_RANK"]).write_text(f"{os.getpid()} {os.getppid()}")
    print("first", flush=True)
    wait_for("go")
    raise RuntimeError("bad")

lattice.launch(fail, hostnames=["localhost"] * 2, workers_per_host=2, backend=None, framework="generic")
"""
    with run(script, tmp_path) as shown:
        live(shown)
        families = [tmp_path / rank for rank in "0123"]
        eventually(lambda: all(family.exists() and family.read_text() for family in families), within=60)
        pids = [int(pid) for family in families for pid in family.read_text().split()]
        if end == "Ctrl-C":
            shown.type("\x03")
        elif end == "SIGTERM":
            os.kill(shown.process.pid, signal.SIGTERM)
        else:
            go(tmp_path)
        code = shown.end()
        assert not any(LIVE in line for line in shown.all)
        assert shown.cursor_is_shown
        eventually(lambda: not [pid for pid in pids if alive(pid)])
        if end == "SIGTERM":
            assert code == -signal.SIGTERM
            assert shown.all == BEFORE
        elif end == "Ctrl-C":
            assert code == -signal.SIGINT
            assert shown.screen[-1] == "KeyboardInterrupt"
        else:
            assert code == 1
            assert "RuntimeError: bad" in shown.all


def test_what_other_threads_print_is_whole_and_prompts_have_the_terminal(tmp_path: Path) -> None:
    script = """
def talk():
    wait_for("talk")
    for number in range(100):
        print("from a thread", number)
    print("half", end=" ")
    sys.stderr.write("a line\\n")
    logging.warning("logged")
    wait_for("ask")
    print("hello", input("name? "))
    Path("go").touch()

logging.basicConfig(format="%(message)s")
threading.Thread(target=talk).start()
launch()
"""
    with run(script, tmp_path) as shown:
        live(shown)
        go(tmp_path, "talk")
        said = [f"from a thread {number}" for number in range(100)]
        said += ["half a line", "logged"]
        assert live(shown, after="logged")[:-2] == [*BEFORE, *said]
        go(tmp_path, "ask")
        eventually(lambda: shown.screen[-1] == "name?")
        assert not shown.shows(LIVE)
        shown.type("ann\r")
        assert shown.end() == 0
        assert shown.all == [*BEFORE, *said, "name? ann", "hello ann", *logged()]


def told(lines: list[str]) -> int:
    return sum(line.count("localhost") for line in lines if re.match(r"\[lattice\] .*: 2 workers, round 1$", line))


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"WITHOUT": "rich"}])
def test_terminals_that_want_less(variables: dict[str, str], tmp_path: Path) -> None:
    script = "if 'WITHOUT' in os.environ: sys.modules['rich'] = None\nlaunch()"
    with run(script, tmp_path, environ=variables) as shown:
        if "NO_COLOR" in variables:
            live(shown)
        else:
            eventually(lambda: told(shown.all) == 2, within=60)
        go(tmp_path)
        assert shown.end() == 0
        if "NO_COLOR" in variables:
            assert b"\x1b[" in shown.written
            assert (
                b"\x1b[3" not in shown.written and b"\x1b[1m" not in shown.written and b"\x1b[0m" not in shown.written
            )
        else:
            assert b"\x1b" not in shown.written


HOSTS = """
from lattice.launching.display.showing import shown
from lattice.launching.display.states import HostStatus

def hosts():
    now = time.monotonic()
    return [HostStatus(f"node{number}", number, "running", now - 5, workers=8, pids=tuple(range(8)), round=1)
            for number in range(50)]

with shown(hosts, True):
    wait_for("print")
    for number in range(30):
        print("line", number)
    wait_for("go")
"""


def test_many_hosts_take_half_of_the_screen_and_a_window_may_change(tmp_path: Path) -> None:
    def fits(height: int) -> bool:
        shows = [line for line in shown.screen if line.startswith("node")]
        return len(shows) == height // 2 - 1 and shown.shows(f"and {51 - height // 2} more hosts: ")

    with run(HOSTS, tmp_path, lines=20) as shown:
        eventually(lambda: fits(20), within=60)
        assert shown.screen[0] == "before"
        shown.resize(70, 30)
        eventually(lambda: fits(30), within=60)
        go(tmp_path, "print")
        eventually(lambda: shown.shows("line 29") and fits(30), within=60)
        go(tmp_path)
        assert shown.end() == 0
        assert [line for line in shown.all if line.startswith("line")] == [f"line {number}" for number in range(30)]
        assert not shown.shows("node") and not shown.shows("more hosts")
