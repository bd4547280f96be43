"""The example of a job with roles, as the documentation tells to try it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.jobs.places import local
from tests.waiting import eventually

FILE = Path(__file__).parents[2] / "examples" / "roles" / "job.yaml"


def test_the_example_learns_and_ends_by_itself(tmp_path: Path) -> None:
    with local(tmp_path) as place:
        try:
            said = place.run("submit", "--file", str(FILE), "--env", "SECONDS=4", "--wait")
            assert said.code == 0, said.out + said.err
            (tries,) = re.findall(r"tries: (.*)", said.out)
            assert len(re.findall(r"\d+ by pid \d+", tries)) == 3, "every worker found the learner"
            assert said.out.count("was asked to stop") == 3
        finally:
            place.run("kill", "roles")
        eventually(lambda: not place.running(), within=60)
