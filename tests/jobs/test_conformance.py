"""The same promises everywhere: one suite over all places."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from lattice.errors import StoreRefused, StoreUnavailable
from lattice.launching.certificate import certificate_of, make_text
from lattice.stores.served import served_at
from lattice.stores.served_frames import secret_of
from lattice.stores.served_tls import client_context
from tests.jobs import programs
from tests.jobs.places import Place
from tests.waiting import eventually

STARTED = 150.0
"""seconds in which nodes, instances even, have come up on a busy machine"""
LOGGED = 90.0
"""seconds in which output is where it is read; some places bring it there a moment later"""


def test_a_job_runs_its_script_with_its_arguments_in_every_worker(place: Place) -> None:
    (place.folder / "tell.py").write_text(programs.TELL)
    arguments = ["--lr", "0.1", "two words", "", 'it\'s $HOME\n"quoted" *', "--", "-x"]
    said = place.submit("tell", "--nproc_per_node", "2", "tell.py", "--", *arguments)
    assert said.code == 0, said.err
    assert place.run("wait", "tell").code == 0
    lines = [json.dumps([rank, 4, arguments]) + "\n" for rank in range(4)]
    eventually(
        lambda: [place.run("logs", "tell", "--rank", str(rank)).out for rank in range(4)] == lines, within=LOGGED
    )
    found = place.reaches("tell", "succeeded")
    assert (found["exit_code"], found["restarts"], len(found["nodes"])) == (0, 0, 2)
    eventually(lambda: not place.running(), within=60)


def test_a_failure_is_the_jobs_own_with_its_exit_code_and_cause(place: Place) -> None:
    (place.folder / "fail.py").write_text(programs.FAIL)
    assert place.submit("fail", "fail.py").code == 0
    assert place.run("wait", "fail").code == 7
    found = place.reaches("fail", "failed")
    assert found["exit_code"] == 7
    assert "rank 1" in found["last_failure"]
    shown = place.run("status", "fail")
    assert "failed (7)" in shown.out
    eventually(lambda: "this is the end" in place.run("logs", "fail").out, within=LOGGED)


def test_a_submission_that_waits_shows_the_logs_and_has_the_jobs_exit_code(place: Place) -> None:
    (place.folder / "fail.py").write_text(programs.FAIL)
    said = place.submit("waited", "--wait", "fail.py")
    assert said.code == 7, said.err
    assert "this is the end" in said.out


def test_a_restart_within_the_budget_is_counted(place: Place) -> None:
    (place.folder / "once.py").write_text(programs.FAIL_ONCE)
    assert place.submit("once", "--max_restarts", "1", "once.py").code == 0
    assert place.run("wait", "once").code == 0
    assert place.reaches("once", "succeeded")["restarts"] == 1


def test_a_kill_lets_workers_save_and_leaves_nothing_that_runs(place: Place) -> None:
    (place.folder / "save.py").write_text(programs.SAVE)
    assert place.submit("save", "save.py").code == 0
    eventually(lambda: place.run("logs", "save").out.count("ready") == 2, within=STARTED)
    assert place.running()
    killed = place.run("kill", "save")
    assert killed.code == 0, killed.err
    eventually(lambda: not place.running())
    assert place.status("save")["state"] == "killed"
    eventually(lambda: place.run("logs", "save").out.count("saved") == 2, within=LOGGED)
    assert place.run("wait", "save").code == 143


def test_a_killed_job_can_be_killed_again_and_its_name_is_free(place: Place) -> None:
    (place.folder / "save.py").write_text(programs.SAVE)
    assert place.submit("save", "save.py").code == 0
    for _ in range(2):
        killed = place.run("kill", "save")
        assert killed.code == 0, killed.err
    (place.folder / "save.py").write_text(programs.TELL)
    assert place.submit("save", "save.py").code == 0
    assert place.run("wait", "save").code == 0


def test_the_same_submission_twice_is_one_job_and_another_is_refused(place: Place) -> None:
    (place.folder / "save.py").write_text(programs.SAVE)
    assert place.submit("twice", "save.py").code == 0
    first = place.status("twice")["submission"]
    again = place.submit("twice", "save.py")
    assert (again.code, "already" in again.err) == (0, True), again.err
    other = place.submit("twice", "save.py", "--", "--other")
    assert other.code == 2
    assert "lattice kill twice" in other.err
    assert place.status("twice")["submission"] == first


def test_a_folder_goes_along_whole(place: Place) -> None:
    project = place.folder / "project"
    (project / "package").mkdir(parents=True)
    (project / "package" / "__init__.py").write_text("")
    (project / "package" / "part.py").write_text("WORD = 'found'\n")
    (project / "main.py").write_text("from package.part import WORD\nprint(WORD, open('data.txt').read())\n")
    (project / "data.txt").write_text("too")
    assert place.submit("folder", "project", "main.py").code == 0
    (project / "package" / "part.py").write_text("WORD = 'changed'\n")  # what was submitted is what runs
    assert place.run("wait", "folder").code == 0
    eventually(lambda: "found too" in place.run("logs", "--rank", "0", "folder").out, within=LOGGED)


def test_variables_reach_the_workers_and_no_process_list(place: Place) -> None:
    (place.folder / "env.py").write_text("import os\nprint(os.environ['COLOUR'])\n")
    assert place.submit("env", "--env", "COLOUR=dark green", "env.py").code == 0
    assert place.run("wait", "env").code == 0
    eventually(lambda: "dark green" in place.run("logs", "--rank", "1", "env").out, within=LOGGED)


def test_what_cannot_start_is_an_error_and_leaves_nothing(place: Place) -> None:
    said = place.submit("none", "--no_upload", "/no/such/script.py")
    if place.queues:
        assert place.run("wait", "none").code == 2
        eventually(lambda: "/no/such/script.py" in place.run("logs", "none").out, within=LOGGED)
        return
    assert said.code == 2
    assert "/no/such/script.py" in said.err
    unknown = place.run("status", "none")
    assert (unknown.code, "no job 'none'" in unknown.err) == (2, True)
    nodes = place.home / "nodes"
    assert not nodes.exists() or not list(nodes.iterdir())
    eventually(lambda: not place.running())


def test_a_job_shrinks_and_grows_within_its_size(place: Place) -> None:
    (place.folder / "save.py").write_text(programs.SAVE)
    assert (
        place.submit("scaled", "--size", "1:3", "--rdzv_conf", "last_call=1,grow_interval=1", "save.py", size=3).code
        == 0
    )

    def worlds(nodes: int) -> bool:
        found = place.status("scaled")
        present = [node for node in found["nodes"] if node["state"] == "running"]
        return len(present) == nodes and {node["world"] for node in present} == {nodes}

    eventually(lambda: worlds(3), within=STARTED)
    shrunk = place.run("scale", "scaled", "1")
    assert shrunk.code == 0, shrunk.err
    eventually(lambda: worlds(1), within=STARTED)
    grown = place.run("scale", "scaled", "2")
    assert grown.code == 0, grown.err
    eventually(lambda: worlds(2), within=STARTED)
    refused = place.run("scale", "scaled", "4")
    assert (refused.code, "1 to 3" in refused.err) == (2, True)


def test_a_killed_agent_is_seen_and_can_be_started_again(place: Place) -> None:
    (place.folder / "save.py").write_text(programs.SAVE)
    options = ("--size", "1:2", "--rdzv_conf", "last_call=1,grow_interval=1,lease_ttl=2")
    assert place.submit("hurt", *options, "save.py").code == 0
    both = {("running", 2)}
    eventually(
        lambda: {(node["state"], node["world"]) for node in place.status("hurt")["nodes"]} == both, within=STARTED
    )
    place.kill_agent(place.status("hurt")["nodes"][1])
    eventually(lambda: [node["state"] for node in place.status("hurt")["nodes"]] == ["running", "lost"], within=60)
    assert place.status("hurt")["state"] == "running"
    again = place.run("scale", "hurt", "2")
    assert again.code == 0, again.err
    eventually(
        lambda: {(node["state"], node["world"]) for node in place.status("hurt")["nodes"]} == both, within=STARTED
    )


def test_the_nodes_meet_at_a_store_that_speaks_tls_only(place: Place, tmp_path: Path) -> None:
    (place.folder / "save.py").write_text(programs.SAVE)
    assert place.submit("met", "save.py").code == 0
    place.reaches("met", "running")
    submission = place.status("met")["submission"]
    folder = place.home / "nodes" / submission
    assert {path.name: oct(path.stat().st_mode)[-3:] for path in folder.glob("*/store.*")} == {
        "store.crt": "600",
        "store.pem": "600",
    }
    assert not (folder / "1" / "store.pem").exists()
    assert all("cacert=../store.crt" in one for one in place.running() if " run " in one.replace("\0", " "))
    if place.queues:
        return  # its hosts have a network of their own
    facts = json.loads((place.home / "jobs" / "met.json").read_text())["facts"]
    host, port = facts["endpoint"].rsplit(":", 1)
    secret = secret_of(facts["password"], submission)
    other = tmp_path / "other.crt"
    other.write_bytes(certificate_of(make_text()))
    known = served_at(((host, int(port)),), secret, 20.0, client_context(str(folder / "0" / "store.crt")))
    with contextlib.closing(known) as store:
        assert store.read("/lattice/", prefix=True).items
    with contextlib.closing(served_at(((host, int(port)),), secret, 1.0)) as store, pytest.raises(StoreUnavailable):
        store.identity()
    stranger = served_at(((host, int(port)),), secret, 20.0, client_context(str(other)))
    with contextlib.closing(stranger) as store, pytest.raises(StoreRefused):
        store.identity()


@pytest.mark.parametrize(
    "words", [("status", "nobody"), ("logs", "nobody"), ("kill", "nobody"), ("scale", "nobody", "2")]
)
def test_an_unknown_job_is_a_clear_error(place: Place, words: tuple[str, ...]) -> None:
    said = place.run(*words)
    assert (said.code, said.err) == (2, "lattice: there is no job 'nobody' (jobs of this user: none yet)\n")
