"""What is counted of launched functions."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmark
from benchmarks import chart, launch_scenarios, launches, peer, processes
from benchmarks.jobs import clean_environment
from benchmarks.launches import distinct, peak
from benchmarks.measure import Series, Sides
from benchmarks.results import Compared
from benchmarks.scenarios import Effort, scenarios
from benchmarks.workers import launching


def test_a_line_counts_once_wherever_it_arrived(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    launching.wordy(12)
    printed = capsys.readouterr().out.encode()
    assert distinct([printed]) == 12
    cut = printed[: printed.index(b"line 11")]
    assert distinct([b"INFO:localhost[1]: " + cut, b"[localhost:1] " + cut, b"line 3 of rank 0: loss\n"]) == 12
    assert distinct([cut, b"line 11 of ra"]) == 11


def test_the_peak_is_that_of_one_moment_and_of_the_processes_that_count() -> None:
    samples = [{1: 10.0, 2: 5.0}, {1: 20.0, 2: 1.0, 3: 2.0, 4: 100.0}, {1: 15.0, 3: 4.0}]
    assert peak(samples, only=[1]) == 20.0
    assert peak(samples, without=[1, 4]) == 5.0


def test_without_torchrunx_nothing_is_compared_with_it_and_nothing_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[Compared] = []
    monkeypatch.setattr(peer, "PYTHON", tmp_path / "python")
    monkeypatch.setattr(benchmark, "write", lambda compared, *_: written.extend(compared))
    monkeypatch.setattr(benchmark, "running_etcd", lambda: nullcontext(""))
    monkeypatch.setattr(benchmark, "compare", lambda scenario: Sides(*(Series(one, ()) for one in ("a", "b"))))
    monkeypatch.setattr(processes, "become_subreaper", lambda: None)
    monkeypatch.setattr(processes, "kill_descendants", lambda: None)  # of this process: servers that tests share
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "launch*", "--only", "start", "--merge"])
    handler = signal.getsignal(signal.SIGTERM)
    try:
        benchmark.main()
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert "launch-lines: left out, there is no torchrunx here" in capsys.readouterr().out
    known = [one["name"] for one in json.loads(chart.FIGURES.read_text())["scenarios"]]
    assert [one.scenario.name for one in written] == known, "all that was written down before"


def test_launches_are_compared_with_torchrunx() -> None:
    found = launch_scenarios.launch_scenarios(Effort())
    assert all([side.name for side in one.contenders] == ["Lattice", "torchrunx"] for one in found)
    assert {one.needs for one in found} == {"torchrunx"}
    names = [one.name for one in (*scenarios("", Effort()), *found)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("side", ["lattice", "pool"])
def test_the_script_tells_its_moments(side: str, tmp_path: Path) -> None:
    argv = [sys.executable, launches.SCRIPT, side, str(tmp_path), "twice"]
    subprocess.run(argv, env={**clean_environment(), launches.LOG_FOLDER: str(tmp_path)}, check=True, cwd=tmp_path)
    moments = json.loads((tmp_path / "moments.json").read_text())
    assert list(moments) == ["first call", "first result", "second call", "second result"]
    assert list(moments.values()) == sorted(moments.values())
