"""The examples, with the variables that an agent gives but no agent: they run under any launcher that gives those."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from lattice.core.topology import Assignment, RosterEntry
from lattice.environments import environment
from lattice.process.ports import ReservedPorts
from tests.checkpoint.looking import steps
from tests.waiting import eventually, patience

EXAMPLES = Path(__file__).parents[2] / "examples"
ADDRESS = "127.0.0.1"


@contextmanager
def workers(world: int, script: str, *arguments: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Run an example once per rank."""
    pytorch = environment("pytorch")
    with ExitStack() as stack:
        (port,) = stack.enter_context(ReservedPorts(1)).ports
        entry = RosterEntry("a", 0, 0, world, "host", ADDRESS, (port,))
        assignment = Assignment("run", 1, 0, 3, "default", entry, 1, world, ADDRESS, port)
        started = []
        for rank in range(world):
            given = {**pytorch.defaults(2, {}), **pytorch.variables(assignment, rank, "/dev/null")}
            process = subprocess.Popen(
                [sys.executable, str(EXAMPLES / script), *arguments],
                env={**os.environ, **given},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            started.append(process)
        yield started


def outputs(started: list[subprocess.Popen[str]]) -> list[str]:
    texts = []
    for process in started:
        text, _ = process.communicate(timeout=patience(120))
        assert process.returncode == 0, text
        texts.append(text)
    return texts


def losses(text: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in re.findall(r"^step (\d+) loss (\S+)", text, re.MULTILINE)}


def test_hello_shows_its_variables_and_forms_a_group() -> None:
    with workers(2, "hello_elastic.py", "--steps", "2", "--pause", "0") as started:
        texts = outputs(started)
    for rank, (process, text) in enumerate(zip(started, texts, strict=True)):
        assert f"Environment variables set by the agent on PID {process.pid}:" in text
        for line in (f"'RANK': '{rank}'", "'WORLD_SIZE': '2'", "'TORCHELASTIC_MAX_RESTARTS': '3'"):
            assert line in text
        assert f"On PID {process.pid}, after init process group, rank={rank}, world_size=2" in text
    assert "step 1: 2 workers\nstep 2: 2 workers\n" in texts[0]


@pytest.mark.long
def test_training_goes_on_where_a_killed_worker_left_it_and_with_another_world(tmp_path: Path) -> None:
    broken, whole = str(tmp_path / "broken"), str(tmp_path / "whole")
    with workers(2, "train_elastic.py", "--checkpoint", broken, "--steps", "1000000") as started:
        eventually(lambda: steps(broken), within=120)
        os.kill(started[1].pid, signal.SIGKILL)
        interrupted, _ = started[0].communicate(timeout=patience(120))
        assert started[0].returncode != 0
    before = losses(interrupted)
    last = max(before)

    more = ("--steps", str(last + 40))
    with (
        workers(3, "train_elastic.py", "--checkpoint", broken, *more) as three,
        workers(1, "train_elastic.py", "--checkpoint", whole, *more) as one,
    ):
        resumed, alone = outputs(three)[0], outputs(one)[0]
    begun = int(re.findall(r"begin at step (\d+)", resumed)[0])
    assert begun >= last
    after = losses(resumed)
    assert min(after) == begun + 10 and max(after) == last + 40
    # The same steps on the same batches: who did them, and in how many pieces, makes no difference.
    expected = losses(alone)
    for step, loss in {**before, **after}.items():
        if step in expected:
            assert abs(loss - expected[step]) < 0.02 + 0.02 * expected[step], step
    assert expected[max(expected)] < expected[10]
    assert steps(whole) == [last + 40, last + 30, last + 20]
