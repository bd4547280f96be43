"""
The client is killed at every step of a submission, and of a kill: run again, nothing is doubled or left behind.

Where a step takes long it is every third one, and every one under ``make soak``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs import programs
from tests.jobs.places import COMMAND_TIMEOUT, Place
from tests.jobs.role_programs import race
from tests.waiting import eventually, patience

pytestmark = pytest.mark.soak

MOST = 40
CUT = """
import os, signal, sys
from lattice import cli
from lattice.jobs import calls, desk, index
from lattice.jobs.backends import slurm

left = int(sys.argv.pop(1))

def step():
    global left
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1

def cut(owner, name, before, after):
    real = getattr(owner, name)
    def stand_in(*args, **kwargs):
        if before:
            step()
        found = real(*args, **kwargs)
        if after:
            step()
        return found
    setattr(owner, name, stand_in)

cut(index.Index, "put", before=False, after=True)
cut(calls.Here, "ask", before=False, after=True)
cut(desk.Desk, "_remember", before=True, after=True)  # an agent that nobody knows yet, and one that waits for a word
cut(calls.Conversation, "_find_start", before=True, after=False)  # over SSH: what was asked for may still go on
cut(slurm, "_client", before=False, after=True)
sys.exit(cli.main(sys.argv[1:]))
"""


def killed(place: Place, steps: int, *words: str) -> bool:
    """Run a command that is killed after so many steps; tell whether it was."""
    ended = subprocess.run(
        [sys.executable, "-c", CUT, str(steps), *words],
        env=place.environ(),
        cwd=place.folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=patience(COMMAND_TIMEOUT),
        check=False,
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr.decode()
    return ended.returncode != 0


def steps_of(place: Place) -> range:
    """Give the steps at which the client is killed."""
    return range(0, MOST, 1 if place.name == "local" or "LATTICE_SOAK_ROUNDS" in os.environ else 3)


def submission(place: Place) -> list[str]:
    (place.folder / "save.py").write_text(programs.SAVE)
    place.submitted.add("cut")
    return ["submit", "--name", "cut", "--on", place.name, *place.options(2), "save.py"]


def agents(place: Place) -> list[str]:
    """Name the node of each agent that runs."""
    found = (one.split("\0") for one in place.running())
    journals = (words[words.index("--events") + 1] for words in found if "run" in words and "-m" in words)
    return sorted(Path(journal).parent.name for journal in journals)


def has_nothing_left(place: Place) -> bool:
    nodes = place.home / "nodes"
    return not place.running() and (not nodes.exists() or not list(nodes.iterdir()))


def end(place: Place, steps: int) -> None:
    ended = place.run("kill", "--grace", "20", "cut")
    assert ended.code == 0, f"after {steps} steps: {ended.err}"
    assert place.status("cut")["state"] == "killed"
    eventually(lambda: not place.running())
    forgotten = place.run("forget", "cut")
    assert forgotten.code == 0, f"after {steps} steps: {forgotten.err}"
    eventually(lambda: has_nothing_left(place))


@pytest.mark.timeout(900)
def test_a_submission_that_is_killed_at_any_step_is_completed_by_the_next(place: Place) -> None:
    words = submission(place)
    for steps in steps_of(place):
        if not killed(place, steps, *words):
            assert steps > 4, "hardly a step was seen"
            break
        again = place.run(*words)
        assert again.code == 0, f"after {steps} steps: {again.err}"
        eventually(lambda: agents(place) == ["0", "1"], within=60)
        place.reaches("cut", "running")
        assert agents(place) == ["0", "1"], f"after {steps} steps"
        end(place, steps)
    else:
        raise AssertionError("it never ended")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("place", ["local", pytest.param("slurm", marks=pytest.mark.lab)], indirect=True)
def test_a_submission_that_is_killed_at_any_step_can_be_ended(place: Place) -> None:
    words = submission(place)
    for steps in steps_of(place):
        cut = killed(place, steps, *words)
        end(place, steps)
        if not cut:
            return
    raise AssertionError("it never ended")


@pytest.mark.timeout(900)
def test_a_kill_that_is_killed_at_any_step_is_completed_by_the_next(place: Place) -> None:
    words = submission(place)
    for steps in steps_of(place):
        assert place.run(*words).code == 0
        place.reaches("cut", "running")
        cut = killed(place, steps, "kill", "--grace", "20", "cut")
        end(place, steps)
        if not cut:
            assert steps > 1, "hardly a step was seen"
            return
    raise AssertionError("it never ended")


@pytest.mark.timeout(900)
@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_roles_do_not_change_that(place: Place) -> None:
    place.submitted.add("cut")
    words = ["submit", "--name", "cut", "--file", race(place.folder, of_worker="size: 2, group: each", wanted=99)]
    for steps in range(1, MOST, 1 if "LATTICE_SOAK_ROUNDS" in os.environ else 5):
        cut = killed(place, steps, *words)
        again = place.run(*words)
        assert again.code == 0, f"after {steps} steps: {again.err}"
        eventually(lambda: place.run("logs", "--role", "learner", "cut").out.count("heard worker") == 2, within=90)
        assert agents(place) == ["0", "1", "2"], f"after {steps} steps"
        assert killed(place, 2, "kill", "--grace", "20", "cut")
        end(place, steps)
        if not cut:
            assert steps > 4, "hardly a step was seen"
            return
    raise AssertionError("it never ended")
