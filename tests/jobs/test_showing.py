"""What the user sees: tables and progress, in a terminal and in a pipe."""

from __future__ import annotations

import io
import json
from contextlib import AbstractContextManager
from pathlib import Path

from lattice.core.spec import NodeRange
from lattice.jobs import tables, telling
from lattice.jobs.index import Record
from lattice.jobs.job import Code, Job
from lattice.jobs.progress import RUNNING, JobView, NodeView, judge
from lattice.jobs.screen import Screen
from lattice.jobs.telling import Teller
from tests.jobs import programs
from tests.jobs.places import Place, local
from tests.launching.terminal import Terminal, terminal
from tests.waiting import eventually

RECORD = Record(Job("j", "local", NodeRange(2, 2), Code("train.py")), "j-1")
COMMAND = "import sys\nfrom lattice.cli import main\nsys.exit(main({words!r}))\n"
WITHOUT_RICH = "import sys\nsys.modules['rich'] = None\n"
CLEAR = b"\x1b[2J"


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_that_differ_only_in_numbers_are_about_the_same_thing() -> None:
    shown = Tty()
    say = Teller(shown)
    for text in ("sending: 1 of 20 MB", "sending: 12.5 of 20 MB", "starting 2 nodes"):
        say(text)
    assert shown.getvalue() == (
        "lattice: sending: 1 of 20 MB\n\x1b[A\r\x1b[Klattice: sending: 12.5 of 20 MB\nlattice: starting 2 nodes\n"
    )
    piped = io.StringIO()
    say = Teller(piped)
    for text in ("sending: 1 of 20 MB", "sending: 12.5 of 20 MB", "starting 2 nodes"):
        say(text)
    assert piped.getvalue() == "lattice: sending: 1 of 20 MB\nlattice: starting 2 nodes\n"


def test_in_a_pipe_the_same_thing_is_told_now_and_then() -> None:
    piped = io.StringIO()
    say = Teller(piped)
    say("sending 1")
    say._told -= telling.INTERVAL
    say("sending 2")
    assert piped.getvalue() == "lattice: sending 1\nlattice: sending 2\n"


def test_a_line_that_is_wider_than_the_terminal_is_not_replaced() -> None:
    shown = Tty()
    say = Teller(shown)
    say("x" * 500 + "1")
    say("x" * 500 + "2")
    assert "\x1b" not in shown.getvalue()


def texts(view: JobView) -> list[str]:
    return [line.text for line in tables.jobs([(RECORD, view)], 100.0).lines()]


def test_what_it_costs_is_shown_where_the_place_tells() -> None:
    nodes = [NodeView(0, "a", RUNNING, cost=1.25), NodeView(1, "b", RUNNING, cost=0.5)]
    view = judge(nodes, killed=False)
    assert "COST" in texts(view)[0] and "$1.75" in texts(view)[1]
    assert tables.as_json(RECORD, view)["cost"] == 1.75
    silent = judge([NodeView(0, "a", RUNNING)], killed=False)
    assert "COST" not in texts(silent)[0]
    assert "cost" not in tables.as_json(RECORD, silent)


def test_the_role_of_a_node_is_shown_if_there_are_roles() -> None:
    nodes = [NodeView(0, "a", RUNNING, role="learner"), NodeView(1, "b", RUNNING, role="worker")]
    assert [line.text.split()[:4] for line in tables.nodes(nodes).lines()] == [
        ["NODE", "ROLE", "HOST", "STATE"],
        ["0", "learner", "a", "running"],
        ["1", "worker", "b", "running"],
    ]
    assert "ROLE" not in tables.nodes([NodeView(0, "a", RUNNING)]).lines()[0].text


def test_what_a_worker_said_cannot_move_the_cursor() -> None:
    view = JobView("failed", 1, (), trouble="rank 0: \x1b[31mred\x1b[0m \x1b[2J\x07 end")
    assert texts(view)[1].endswith("rank 0: red ?[2J? end")


def test_a_pipe_gets_a_table_only_when_there_is_news() -> None:
    piped = io.StringIO()
    screen = Screen(piped)
    view = JobView("running", None, ())
    screen.show([tables.jobs([(RECORD, view)], 100.0)])
    screen.show([tables.jobs([(RECORD, view)], 200.0)])  # older, and nothing else
    screen.show([tables.jobs([(RECORD, JobView("succeeded", 0, ()))], 200.0)])
    screen.leave()
    assert piped.getvalue().count("JOB") == 2


def command(place: Place, *words: str, before: str = "", lines: int = 24) -> AbstractContextManager[Terminal]:
    return terminal(before + COMMAND.format(words=list(words)), place.folder, lines=lines, environ=place.environ())


def headers(shown: Terminal) -> int:
    return sum(line.startswith("JOB") for line in shown.all)


def test_a_status_that_is_watched_is_one_table_until_all_has_ended(tmp_path: Path) -> None:
    with local(tmp_path) as place:
        (tmp_path / "save.py").write_text(programs.SAVE)
        try:
            for name in ("one", "two"):
                assert place.submit(name, "save.py").code == 0
            with command(place, "status", "--watch") as shown:
                eventually(lambda: shown.shows("one  running  local  2 of 2"), within=60)
                place.run("kill", "one")
                eventually(lambda: shown.shows("one  killed (143)"), within=60)
                assert shown.shows("two  running") and shown.process.poll() is None
                assert headers(shown) == 1 and CLEAR not in shown.written and shown.cursor_is_shown
                place.run("kill", "two")
                assert shown.end() == 0
                assert shown.shows("two  killed (143)") and headers(shown) == 1
        finally:
            for name in ("one", "two"):
                place.run("kill", "--grace", "20", name)
            eventually(lambda: not place.running())


def test_ctrl_c_leaves_the_table_and_the_job(tmp_path: Path) -> None:
    with local(tmp_path) as place:
        (tmp_path / "save.py").write_text(programs.SAVE)
        try:
            assert place.submit("one", "save.py").code == 0
            with command(place, "status", "-w", "one") as shown:
                eventually(lambda: shown.shows("RANKS"), within=60)
                shown.type("\x03")
                assert shown.end() == 130
                assert shown.shows("one  running") and shown.shows("RANKS") and shown.column == 0
                assert b"Traceback" not in shown.written
            assert place.status("one")["state"] == "running"
        finally:
            place.run("kill", "--grace", "20", "one")
            eventually(lambda: not place.running())


def test_without_rich_a_terminal_gets_the_plain_table(tmp_path: Path) -> None:
    with local(tmp_path) as place:
        (tmp_path / "tell.py").write_text(programs.TELL)
        assert place.submit("one", "tell.py").code == 0
        assert place.run("wait", "one").code == 0
        with command(place, "status", "--watch", before=WITHOUT_RICH) as shown:
            assert shown.end() == 0
            assert shown.shows("one  succeeded  local") and b"\x1b" not in shown.written
        with command(place, "status", "one", lines=4) as shown:  # more than there is room for
            assert shown.end() == 0
            assert headers(shown) == 1 and "\n".join(shown.all).count("localhost") == 2


def test_one_place_that_cannot_be_asked_hides_no_other_job(tmp_path: Path) -> None:
    with local(tmp_path) as place:
        (tmp_path / "tell.py").write_text(programs.TELL)
        assert place.submit("one", "tell.py").code == 0
        assert place.run("wait", "one").code == 0
        record = json.loads((place.home / "jobs" / "one.json").read_text())
        record["job"] |= {"name": "far", "place": "slurm"}
        (place.home / "jobs" / "far.json").write_text(json.dumps(record))
        (tmp_path / "bin").mkdir()
        place.variables["PATH"] = str(tmp_path / "bin")  # no squeue there
        said = place.run("status")
        assert (said.code, said.err) == (0, "")
        assert "one  succeeded" in said.out and "there is no squeue on this machine" in said.out
