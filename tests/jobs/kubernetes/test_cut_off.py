"""The client is killed between any two calls that change something: run again, nothing is doubled or left behind."""

from __future__ import annotations

import os
import signal

import pytest

from tests.jobs import programs
from tests.jobs.kubernetes.pods import KubernetesPlace
from tests.waiting import eventually

pytestmark = pytest.mark.soak


def killed(place: KubernetesPlace, steps: int, *words: str) -> bool:
    """Run a command that is killed before the change after so many; tell whether it was."""
    said = place.run(*words, die=steps)
    assert said.code in (0, -signal.SIGKILL), said.err
    return said.code != 0


def steps_of(count: int) -> range:
    return range(0, count, 1 if "LATTICE_SOAK_ROUNDS" in os.environ else 5)


def test_a_submission_that_is_cut_off_is_completed_or_ended(place: KubernetesPlace) -> None:
    (place.folder / "save.py").write_text(programs.SAVE)
    words = ["submit", "--name", "cut", "--on", "kubernetes", *place.options(2), "save.py"]
    place.submitted.add("cut")
    for steps in steps_of(13):
        assert killed(place, steps, *words), "hardly a step was seen"
        ended = place.run("kill", "--grace", "5", "cut")
        assert ended.code == 0, f"after {steps} steps: {ended.err}"
        assert place.left() == [], f"after {steps} steps"
    assert killed(place, 7, *words)
    (place.folder / "save.py").write_text(programs.SAVE.replace("ready", "prepared"))
    again = place.run(*words)
    assert again.code == 0, again.err
    eventually(lambda: place.run("logs", "cut").out.count("prepared") >= 2, within=150)
    assert sorted(place.running()) == ["cut-0", "cut-1", "cut-rdzv-0"]
    for steps in range(3):
        if not killed(place, steps, "kill", "--grace", "5", "cut"):
            break
    ended = place.run("kill", "--grace", "5", "cut")
    assert ended.code == 0, ended.err
    assert place.left() == []
    assert place.status("cut")["state"] == "killed"
