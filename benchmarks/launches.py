"""One try of each thing that is measured of launched functions: run the script of one side, and see what it did."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import peer, processes
from benchmarks.jobs import WORKERS as SCRIPTS
from benchmarks.jobs import Job, NeverStartedError
from benchmarks.measure import Try
from benchmarks.workers.launching import LINES, WORKERS

SCRIPT = str(SCRIPTS / "launching.py")
LONGEST = 300.0
LOOK = 0.05
SETTLE = 0.5
LOG_FOLDER = "TORCHRUNX_LOG_DIR"
"""both sides write their files there"""
LINE = re.compile(rb"line (\d+) of rank (\d+): loss")
COMMAND, SECOND = "result, from the command", "result of a second launch, from its call"
EXCEPTION = "exception"
ALL_LINES = WORKERS * LINES
LOST = f"lines lost of {ALL_LINES:,}"
LAUNCHER, AGENT, MACHINE = "launcher", "agent and its helpers", "all that was taken from the machine"


@dataclass(frozen=True, slots=True)
class Side:
    """Who launches."""

    python: str
    word: str
    """what the script calls it"""
    environ: Mapping[str, str] = field(default_factory=dict)


LATTICE, POOL = Side(sys.executable, "lattice"), Side(sys.executable, "pool")
# Lattice registers itself with the torch that both share: that must not cost the other side anything.
TORCHRUNX = Side(str(peer.PYTHON), "torchrunx", {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})


class Launch(Job):
    """One run of the script."""

    def __init__(self, side: Side, what: str) -> None:
        super().__init__()
        self.began = time.monotonic()
        argv = [side.python, SCRIPT, side.word, str(self.stamps_folder), what]
        self.program = self.start(argv, {**side.environ, LOG_FOLDER: str(self.folder / "logs")})

    def end(self) -> dict[str, float]:
        """Wait for the end of the script, and give its moments."""
        try:
            code = self.program.wait(LONGEST)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            raise NeverStartedError(f"the script did not come to its end ({code}):\n{self.output()}")
        moments: dict[str, float] = json.loads((self.stamps_folder / "moments.json").read_text())
        return moments


def twice(side: Side) -> Try:
    """Measure a launch of a function that does nothing, and another one after it in the same script."""
    before = _used()
    with Launch(side, "twice") as launch:
        moments = launch.end()
    figures = {
        COMMAND: moments["first result"] - launch.began,
        SECOND: moments["second result"] - moments["second call"],
    }
    return Try(figures, _used() - before)


def second(side: Side) -> Try:
    """Measure the second launch alone."""
    both = twice(side)
    return Try({SECOND: both.figures[SECOND]}, both.cpu)


def array(side: Side) -> Try:
    """Measure how long an array takes to all workers and back."""
    before = _used()
    with Launch(side, "array") as launch:
        moments = launch.end()
    return Try({COMMAND: moments["result"] - launch.began}, _used() - before)


def array_memory(side: Side) -> Try:
    """Measure the memory that this takes."""
    before, free = _used(), _available()
    samples: list[dict[int, float]] = []
    least = free
    with Launch(side, "array") as launch:
        pid = launch.program.pid
        while launch.program.poll() is None:
            samples.append(_held([pid, *processes.descendants(pid)]))
            least = min(least, _available())
            time.sleep(LOOK)
        launch.end()
        workers = launch.worker_pids()
    figures = {LAUNCHER: peak(samples, only=[pid]), AGENT: peak(samples, without=[pid, *workers])}
    return Try({**figures, MACHINE: free - least}, _used() - before)


def lines(side: Side) -> Try:
    """Measure a flood of lines, and how many of them never reached the launcher."""
    before = _used()
    with Launch(side, "lines") as launch:
        moments = launch.end()
        texts = (path.read_bytes() for path in launch.folder.rglob("*") if path.suffix == ".log")
        arrived = distinct(texts)
    return Try({COMMAND: moments["result"] - launch.began, LOST: ALL_LINES - arrived}, _used() - before)


def death(side: Side) -> Try:
    """Measure from the SIGKILL of a worker to the exception in the script."""
    before = _used()
    with Launch(side, "death") as launch:
        formed = launch.wait_begun(WORKERS)
        time.sleep(SETTLE)
        fault = time.monotonic()
        processes.kill([formed.pids[-1]])
        moments = launch.end()
    return Try({EXCEPTION: moments["exception"] - fault}, _used() - before)


def distinct(texts: Iterable[bytes]) -> int:
    """Count the different lines of workers in what a launcher wrote."""
    return len({found for text in texts for found in LINE.findall(text)})


def peak(samples: Sequence[Mapping[int, float]], only: Collection[int] = (), without: Collection[int] = ()) -> float:
    """
    Find the most that some processes ever held together.

    :param samples: how much each process held, one moment after another
    :param only: the processes; all if there are none
    :param without: processes that do not count
    """
    return max(
        sum(held for pid, held in sample.items() if (not only or pid in only) and pid not in without)
        for sample in samples
    )


def _held(pids: Iterable[int]) -> dict[int, float]:
    held = {}
    for pid in pids:
        try:
            held[pid] = processes.memory([pid])[1]
        except OSError:
            continue  # it has ended
    return held


def _available() -> float:
    text = Path("/proc/meminfo").read_text()
    return int(text.partition("MemAvailable:")[2].split()[0]) / 1024


def _used() -> float:
    """Give the processor seconds of all that has ended: what others left behind has become ours."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
