"""The final report: the first failing rank and its traceback before anything else, the others in one line each."""

from __future__ import annotations

from tests.agents import Cluster

RAISES = """
import os, sys, time
from pathlib import Path

def deep():
    raise ValueError("the cause " + os.environ["LATTICE_RANK"])

if os.environ["LATTICE_RANK"] == "1":
    deep()
time.sleep(600)
"""

RECORDED = """
import os, time
from torch.distributed.elastic.multiprocessing.errors import record

@record
def main():
    if os.environ["RANK"] == "1":
        raise ValueError("recorded by rank 1")
    time.sleep(600)

main()
"""


def report_of(output: str) -> list[str]:
    """Take the final report out of what an agent wrote."""
    lines = [line.removeprefix("lattice: ") for line in output.splitlines() if line.startswith("lattice: ")]
    begin = next(at for at, line in enumerate(lines) if "First to fail" in line)
    return lines[begin:]


def test_a_traceback_without_record(alone: Cluster) -> None:
    agent = alone.agent("--nproc_per_node", "3", "--redirects", "3", entry=[alone.script(RAISES)])
    assert agent.wait() == 1
    headline, who, *rest = report_of(agent.output())
    assert "failed in round 1" in headline
    assert "rank 1 on " in who and "exit code 1" in who
    text = "\n".join(rest)
    assert "Traceback (most recent call last)" in text
    assert "in deep" in text and "ValueError: the cause 1" in text
    assert "then rank" not in text


def test_a_traceback_with_record(alone: Cluster) -> None:
    agent = alone.agent("--framework", "pytorch", "--nproc_per_node", "2", entry=[alone.script(RECORDED)])
    assert agent.wait() == 1
    _, who, *rest = report_of(agent.output())
    assert "rank 1 on " in who
    assert "ValueError: recorded by rank 1" in "\n".join(rest)
    assert "in main" in "\n".join(rest)


def test_a_worker_without_python_shows_the_end_of_its_stderr(alone: Cluster) -> None:
    agent = alone.agent("--no_python", entry=["sh", "-c", "echo the last words >&2; exit 4"])
    assert agent.wait() == 4
    assert any("| the last words" in line for line in report_of(agent.output()))


def test_a_generic_worker_that_wants_rank_gets_a_hint(alone: Cluster) -> None:
    agent = alone.agent(entry=[alone.script("import os\nos.environ['RANK']")])
    assert agent.wait() == 1
    assert "--framework pytorch" in "\n".join(report_of(agent.output()))


def test_an_error_file_of_an_earlier_run_of_the_same_id_is_not_believed(alone: Cluster) -> None:
    fails = alone.script(RECORDED.replace('"1"', '"0"'), "fails.py")
    assert alone.agent("--framework", "pytorch", "--rdzv_id", "again", entry=[fails]).wait() == 1
    agent = alone.agent("--framework", "pytorch", "--rdzv_id", "again", entry=[alone.script("import sys; sys.exit(3)")])
    assert agent.wait() == 3
    assert "recorded by rank" not in "\n".join(report_of(agent.output()))
    assert list(alone.folder.glob("logs/again/round_1/0/error*.json")), "the earlier error was deleted"
