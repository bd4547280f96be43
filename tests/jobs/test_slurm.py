"""What the user has for sbatch goes along, but not so far that a job is lost out of sight."""

from __future__ import annotations

from pathlib import Path

import pytest

from lattice.core.spec import NodeRange
from lattice.errors import UsageError
from lattice.jobs.backends.slurm import SlurmBackend, sbatch
from lattice.jobs.index import new_record
from lattice.jobs.job import Code, Job


def job(options: str) -> Job:
    return Job("try", "slurm", NodeRange(2, 2), Code("train.py"), place_options={"slurm_options": options})


def test_what_finds_the_job_again_comes_last_and_holds() -> None:
    words = sbatch(job("-J other --nodes=1 --output=o.log '--comment=two words'"), "try-1", [0, 1])
    assert words[:3] == ["sbatch", "--output=/dev/null", "--export=ALL"]
    assert words[3:8] == ["-J", "other", "--nodes=1", "--output=o.log", "--comment=two words"]
    assert {"--job-name=try-1.0", "--nodes=2"} < set(words[8:])


@pytest.mark.parametrize(
    "options", ["--array=1-3", "--array 1-3", "-a 1-3", "-a1-3", "--arr=1", "--wrap=true", "-p 'a"]
)
def test_what_would_make_something_else_of_the_job_is_refused(options: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--slurm_options"):
        SlurmBackend(tmp_path).plan(job(options))
    with pytest.raises(UsageError, match="--slurm_options"):
        SlurmBackend(tmp_path).submit(new_record(job(options)), lambda _: None, lambda _: None)
    assert not list(tmp_path.iterdir())


def test_options_that_only_begin_alike_are_taken() -> None:
    assert sbatch(job("--account=me -A me --wait-all-nodes=1"), "try-1", [0])[3:5] == ["--account=me", "-A"]
