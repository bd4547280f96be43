"""
What SLURM runs on each node of a job: the agent of that node, with its output in the job's folder.

``python -m lattice.jobs.slurm_task HOME SUBMISSION [INDEX,...]``: one index for each task; without any, a task's is its
number.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from lattice.jobs.desk import Desk, desk
from lattice.jobs.node import free_port

MEETING_TIMEOUT = 600.0
"""seconds that the node of the store has to come"""
TICK = 0.1
LEAVE = signal.SIGURG
"""
Asks a node to leave. SLURM signals every process of a step, workers too. With SIGTERM they would hear it twice, the
second time from their agent, maybe in the middle of a save. Processes that do not listen ignore this one.
"""


def main(words: list[str], asked: list[int]) -> int:
    """
    Run the agent of this node.

    :param asked: the signals that came so far, see :func:`listen`
    """
    root, submission = Path(words[0]), words[1]
    task = int(os.environ["SLURM_PROCID"])
    index = int(words[2].split(",")[task]) if len(words) > 2 else task
    place = desk(root, submission, index)
    if index and _is_over(desk(root, submission, 0), place):
        place.note("ended", {"code": 0})
        return 0
    host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    place.note("task", {"host": host})
    meeting = place.folder.parent / "meeting.json"
    if index == 0:
        place.note("../meeting", {"endpoint": f"{host}:{free_port()}"})
    status = _run(place, host, _endpoint(meeting, asked), asked)
    place.note("ended", {"code": status})
    return status


def _is_over(first: Desk, place: Desk) -> bool:
    """Tell whether a node that has waited for its turn comes too late: with node 0 the store has gone, and the job."""
    argv, _ = place.command()
    return "embedded" in argv and bool(first.noted("ended"))


def _endpoint(meeting: Path, asked: list[int]) -> str:
    deadline = time.monotonic() + MEETING_TIMEOUT
    while time.monotonic() < deadline:
        if asked:
            sys.exit(128 + signal.SIGTERM)
        try:
            return str(json.loads(meeting.read_text(encoding="utf-8"))["endpoint"])
        except (OSError, ValueError):
            time.sleep(TICK)
    sys.exit(f"lattice: the node that serves the store did not come in {MEETING_TIMEOUT:.0f}s")


def listen() -> list[int]:
    """
    Take note of signals instead of ending.

    :return: those that came so far; it grows
    """
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, LEAVE):
        signal.signal(number, lambda number, frame: asked.append(number))
    return asked


def _run(place: Desk, host: str, endpoint: str, asked: list[int]) -> int:
    argv, environ = place.command()
    environ["LATTICE_RDZV_ENDPOINT"] = environ.get("LATTICE_RDZV_ENDPOINT") or endpoint
    with place.console.open("ab") as output:
        agent = subprocess.Popen(
            argv,
            env=environ,
            cwd=place.code,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    # From now on the agent hears SLURM's own signals by itself.
    signal.signal(LEAVE, lambda *_: agent.send_signal(signal.SIGTERM))
    if asked:  # before there was an agent to hear it
        agent.send_signal(signal.SIGTERM if asked[0] == LEAVE else asked[0])
    place.note("task", {"host": host, "pid": agent.pid})
    status = agent.wait()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], listen()))
