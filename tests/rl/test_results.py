"""Results in a folder and in S3, in formats that anybody can read; places that fail hold up nobody."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from lattice.cli import main
from lattice.rl import results as module
from lattice.rl.places import Place
from lattice.rl.report import read_rewards
from lattice.rl.results import Results, lines, unpacked
from tests.checkpoint.conftest import BUCKET, s3
from tests.moto_server import MotoServer
from tests.rl.test_learner import Counting, Puppet, learning, made, settings
from tests.waiting import eventually

__all__ = ["s3"]


@pytest.fixture(params=["folder", "s3"])
def where(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "results")
        return
    server: MotoServer = request.getfixturevalue("s3")
    request.getfixturevalue("may_leak")  # boto3 keeps connections
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    yield f"s3://{BUCKET}/{tmp_path.name}"


def test_a_run_leaves_all_of_it(where: str, tmp_path: Path, may_leak: None) -> None:
    # matplotlib keeps its fonts open
    from lattice.rl import Goal, Learner, OnPolicyQueue

    state = tmp_path / "state"
    told = settings(results=where, checkpoint=state, run_parameters={"rate": 0.1}, evaluate_every=4, epoch_steps=8)
    learner = Learner(Counting(), OnPolicyQueue(1), Goal(reward=5.0), told)
    with learning(learner) as end:
        puppet = Puppet(learner.port)
        puppet.say("hello", host="here", first=1)
        number, order = 0, None
        while order is None or number < 5:
            number += 1
            answer = puppet.send(made(number, version=learner.counters.version))
            order = order or answer.mapping("evaluate")
        from lattice.rl import Trajectory

        found = {"order": order["order"], "rewards": [5.0], "lengths": [1]}
        puppet.send(Trajectory("puppet", number + 1, 1, {}, 0, None, found))
        assert end().unwritten == 0
        puppet.close()
    kept = Place(where)
    names = [*kept.names(), *kept.names("checkpoints")]
    assert {"params.json", "metrics.jsonl", "checkpoints/epoch_0.npz", "checkpoints/epoch_1.npz"} <= set(names)
    (best,) = [name for name in names if name.startswith("checkpoints/rwd_5.00_id_")]
    assert unpacked(kept.read(best))["updates"].shape == (1,)
    assert not [name for name in names if name.endswith((".pkl", ".pt"))]
    params = json.loads(kept.read("params.json"))
    assert (params["run_parameters"], params["goal"]) == ({"rate": 0.1}, {"reward": 5.0})
    assert "key" not in params and "of the tests" not in kept.read("params.json").decode()
    rows = [json.loads(line) for name in kept.names("rewards") for line in kept.read(name).splitlines()]
    assert [row["number"] for row in rows] == list(range(1, number + 2))
    assert (rows[-1]["kind"], rows[-1]["reward"]) == ("evaluation", 5.0)
    metrics = [json.loads(line) for line in kept.read("metrics.jsonl").splitlines()]
    assert metrics[-1]["env_steps"] == number * 4
    for output, begins in (("r.png", b"\x89PNG"), ("r.svg", b"<?xml"), ("r.html", b"<!DOCTYPE html>")):
        assert main(["rl", "report", where, "-o", str(tmp_path / output)]) == 0
        assert (tmp_path / output).read_bytes().startswith(begins)
    page = (tmp_path / "r.html").read_text()
    assert "data:image/png;base64," in page and "reward_best" in page and "rate" in page


def test_places_keep_what_they_are_given(where: str) -> None:
    kept = Place(where)
    with pytest.raises(FileNotFoundError):
        kept.read("a/b")
    kept.write("a/b", b"1")
    kept.write("a/b", b"22")
    kept.append("a/c", b"3")
    kept.append("a/c", b"4")
    Place(where).append("a/c", b"5")
    assert (kept.read("a/b"), kept.read("a/c")) == (b"22", b"345")
    assert (kept.names(), kept.names("a"), kept.names("none")) == (["a"], ["a/b", "a/c"], [])


def test_a_place_that_fails_is_tried_again_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results").write_text("a file is in the way")
    said: list[str] = []
    results = Results(tmp_path / "results", said.append)
    results.parameters({"a": 1})
    results.metrics({"b": 2})
    eventually(lambda: said)
    assert "params.json could not be written" in said[0] and "again in 0.5s" in said[0]
    (tmp_path / "results").unlink()
    assert results.close(within=20) == 0
    assert json.loads((tmp_path / "results" / "metrics.jsonl").read_text()) == {"b": 2}


def test_what_is_not_written_in_the_end_is_told(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("a file is in the way")
    said: list[str] = []
    results = Results(tmp_path / "results", said.append)
    results.parameters({"a": 1})
    results.best(1.0, 2, {"w": np.ones(3)})
    assert results.close(within=0.2) == 2
    assert "2 results were not written" in said[-1]


def test_policies_are_given_up_before_memory_runs_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3000)
    (tmp_path / "results").write_text("a file is in the way")
    said: list[str] = []
    results = Results(tmp_path / "results", said.append)
    results.parameters({})
    for number in range(5):
        results.epoch(number, {"w": np.zeros(200)})
    results.rewards(1, b"{}\n")
    eventually(lambda: any("epoch_0.npz is given up" in line for line in said))
    (tmp_path / "results").unlink()
    assert results.close(within=20) == 0
    left = sorted(path.name for path in (tmp_path / "results").rglob("*") if path.is_file())
    assert left == ["00000001.jsonl", "epoch_4.npz", "params.json"]


def test_a_report_of_nothing_says_so(tmp_path: Path, may_leak: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rl", "report", str(tmp_path)]) == 1
    assert "no metrics.jsonl" in capsys.readouterr().err
    assert main(["rl", "report", str(tmp_path), "-o", "r.pdf"]) == 2
    assert ".png, .svg, .html" in capsys.readouterr().err
    (tmp_path / "file").touch()
    Place(tmp_path / "some").append("metrics.jsonl", lines([{"env_steps": 1, "life": 1}]))
    for words in ([str(tmp_path / "file")], [str(tmp_path / "some"), "-o", "/proc/none/r.png"]):
        assert main(["rl", "report", *words]) == 2
        assert "Traceback" not in capsys.readouterr().err
    assert main(["rl"]) == 2
    assert main(["rl", "--help"]) == 0
    assert "lattice rl report WHERE" in capsys.readouterr().out


def test_a_line_that_a_crash_cut_off_does_no_harm(tmp_path: Path, may_leak: None) -> None:
    Place(tmp_path).append(
        "metrics.jsonl", lines([{"env_steps": 1, "life": 1}, {"env_steps": 2, "life": 2}]) + b'{"env_st'
    )
    assert main(["rl", "report", str(tmp_path), "-o", str(tmp_path / "r.svg")]) == 0
    assert "life 2" in (tmp_path / "r.svg").read_text(), "a restart is marked"


def test_parameters_are_read_without_pickles() -> None:
    made = io.BytesIO()
    np.savez(made, a=np.array([{"x": 1}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle"):
        unpacked(made.getvalue())


def test_what_a_lost_life_left_is_overwritten_though_nothing_was_taken_in(tmp_path: Path) -> None:
    for rows in (lines([{"worker": "w", "number": 1}]), b""):  # of two lives, the first without a checkpoint
        results = Results(tmp_path)
        results.rewards(1, rows)
        assert results.close() == 0
    assert read_rewards(Place(tmp_path)) == []


def test_episodes_that_were_not_written_yet_go_on_with_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lattice.rl import Goal, Learner, OnPolicyQueue

    told = settings(results=tmp_path / "results", checkpoint=tmp_path / "state", checkpoint_every=0.0)
    (tmp_path / "results").write_text("a file is in the way")
    close = Results.close
    monkeypatch.setattr(Results, "close", lambda self: close(self, within=0.1))
    learner = Learner(Counting(), OnPolicyQueue(1), Goal(updates=5), told)
    with learning(learner) as end:
        puppet = Puppet(learner.port)
        puppet.say("hello", host="here", first=1)
        for number in range(1, 6):
            puppet.send(made(number))
            eventually(lambda number=number: learner.counters.updates == number)  # type: ignore[misc]
        assert end().unwritten > 5
        puppet.close()
    (tmp_path / "results").unlink()
    monkeypatch.setattr(Results, "close", close)
    again = Learner(Counting(), OnPolicyQueue(1), Goal(updates=5), told)
    with learning(again) as end:
        assert (end().lives, end().unwritten) == (2, 0)
    assert [row["number"] for row in read_rewards(Place(tmp_path / "results"))] == [1, 2, 3, 4, 5]
