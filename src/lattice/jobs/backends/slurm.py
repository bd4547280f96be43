"""
Jobs in a SLURM cluster, whose nodes share the folder of Lattice's home.

The nodes that a job cannot do without, of all its roles, are one allocation; those beyond, up to its largest size, are
an allocation each, so that they come and go by themselves.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from lattice.errors import LatticeError, UsageError
from lattice.jobs import archive, orders
from lattice.jobs.archive import Archive
from lattice.jobs.backends import Save, Say, Step, Wanted
from lattice.jobs.desk import Desk, desk, home
from lattice.jobs.index import Record
from lattice.jobs.job import Job, Role
from lattice.jobs.merging import merged
from lattice.jobs.orders import Meeting
from lattice.jobs.progress import ENDED, LOST, PREPARED, RUNNING, NodeView
from lattice.jobs.roles import grace_of, scripts, seats, seats_of, title
from lattice.jobs.slurm_task import LEAVE

POLL = 0.5
CLIENT_TIMEOUT = 60.0
REFUSED = ("--array", "--wrap")
"""options of sbatch that would queue something else than the nodes"""


class SlurmFailed(LatticeError):
    """A command of SLURM failed."""


class SlurmBackend:
    """Submits with sbatch, looks with squeue, ends with scancel."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def plan(self, job: Job) -> tuple[Step, ...]:
        """Tell what a submission would make; pure."""
        steps = []
        for indices in groups(job):
            argv = sbatch(job, f"{job.name}-ID", indices)
            text = script(self._root, f"{job.name}-ID", indices)
            steps.append(Step(f"{_nodes(indices)}: {shlex.join(argv)}", tuple(text.splitlines())))
        meeting = Meeting("", certificate="made for the job")
        for index in range(job.size.maximum if job.roles else 1):
            told = orders.order(job, f"{job.name}-ID", index, meeting)
            who = title(job, index) if job.roles else "each node"
            steps.append(Step(f"{who} runs", orders.shown(told)))
        return tuple(steps)

    def submit(self, record: Record, save: Save, say: Say) -> Record:
        """Make it, or make what is missing."""
        job = record.job
        user_options(job)  # what is wrong in them is told before anything is made
        record = replace(record, hosts=dict.fromkeys(range(job.size.maximum), ""))
        if "password" not in record.facts:
            record = record.with_facts(**orders.new_meeting("", say))
        save(record)
        with archive.packed(job.code, say, scripts(job)) if job.code.upload else nullcontext() as packed:
            say(f"preparing {_nodes(range(job.size.maximum))}")
            self._prepare(record, packed)
        queued = self._queue(record)
        for indices in groups(job):
            if not any(index in queued or self._desk(record, index).noted("task") for index in indices):
                say(f"queueing {_nodes(indices)}")
                self._sbatch(record, indices)
        return record

    def look(self, record: Record) -> list[NodeView]:
        """Tell how its nodes stand."""
        queued = self._queue(record)
        return [self._view(record, index, queued.get(index, "")) for index in sorted(record.hosts)]

    def logs(self, record: Record, wanted: Wanted, *, follow: bool) -> Iterator[tuple[int, bytes]]:
        """Give what was written, in pieces of whole lines, and which node's it is."""
        stopped = threading.Event()

        def read(index: int) -> Iterator[bytes]:
            def goes_on() -> bool:
                return follow and not stopped.is_set() and self._goes_on(record, index)

            return self._desk(record, index).logs(wanted.rank, goes_on)

        return merged({index: partial(read, index) for index in wanted.of(record.hosts)}, stopped.set)

    def scale(self, record: Record, role: Role, nodes: int, save: Save, say: Say) -> Record:
        """Have another number of nodes: those that a job cannot do without stay as they are."""
        queued = self._queue(record)
        extras = [seat for seat in seats_of(record.job, role) if seat.number >= role.size.minimum]
        leaving = [seat.index for seat in extras if seat.number >= nodes and seat.index in queued]
        gone = [seat.index for seat in extras if seat.number < nodes and seat.index not in queued]
        coming = [index for index in gone if self._desk(record, index).noted("ended").get("code") != 0]
        if leaving:
            say(f"{_nodes(leaving)} leave")
            self._end(record, leaving, grace_of(role))
        for index in coming:
            say(f"queueing {_nodes([index])}")
            self._desk(record, index).clear("task", "ended")
            self._sbatch(record, [index])
        return record

    def kill(self, record: Record, grace: float, say: Say) -> list[NodeView]:
        """End it: workers get their time to save."""
        self._end(record, sorted(record.hosts), grace)
        return self.look(record)

    def remove(self, record: Record, say: Say, *, anew: bool = False) -> list[str]:
        """Delete all that it made, and tell what could not be deleted."""
        try:
            self._end(record, sorted(record.hosts), 0.0)
        except SlurmFailed as error:
            return [str(error)]
        shutil.rmtree(self._root / "nodes" / record.submission, ignore_errors=True)
        return []

    def _prepare(self, record: Record, packed: Archive | None) -> None:
        first = self._desk(record, 0)
        for index in range(record.job.size.maximum):
            told = orders.order(record.job, record.submission, index, Meeting.known(record.facts))
            if index or packed is None:
                self._desk(record, index).create(told, None, first.code if index else None)
            else:
                with packed.open() as file:
                    first.create(told, file)

    def _sbatch(self, record: Record, indices: Sequence[int]) -> None:
        text = script(self._root, record.submission, indices)
        _client(sbatch(record.job, record.submission, indices), text)

    def _end(self, record: Record, indices: Sequence[int], grace: float) -> None:
        numbers = self._numbers(record, indices)
        if numbers and grace:
            # A job without a step takes no signal, and has nothing to save.
            begun = self._numbers(record, [index for index in indices if self._desk(record, index).noted("task")])
            if waiting := sorted(set(numbers) - set(begun)):
                _cancel(*waiting)
            if begun:
                _cancel(f"--signal={LEAVE.name.removeprefix('SIG')}", *begun)
            self._wait(record, indices, grace)
        numbers = self._numbers(record, indices)
        if numbers:
            said = _cancel(*numbers)
            if not self._wait(record, indices, 60.0):
                step = f"see scontrol show job {numbers[0]}. {said}"
                raise SlurmFailed(f"SLURM did not end {', '.join(numbers)} in 60s; {step}".rstrip())

    def _wait(self, record: Record, indices: Sequence[int], within: float) -> bool:
        deadline = time.monotonic() + within
        while self._numbers(record, indices):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL)
        return True

    def _numbers(self, record: Record, indices: Sequence[int]) -> list[str]:
        """Give the numbers of SLURM's jobs that hold some nodes."""
        return sorted({number for index, (number, _) in self._jobs(record).items() if index in indices})

    def _queue(self, record: Record) -> dict[int, str]:
        """Give what SLURM says of each node that it still has in its queue."""
        return {index: state for index, (_, state) in self._jobs(record).items()}

    def _jobs(self, record: Record) -> dict[int, tuple[str, str]]:
        said = _client(["squeue", "--noheader", "--all", "--format=%A|%T|%j", "--name", ",".join(_names(record))])
        found = {}
        for line in said.splitlines():
            number, state, name = line.split("|")
            for index in _indices(record.job, name):
                found[index] = (number, state)
        return found

    def _view(self, record: Record, index: int, state: str) -> NodeView:
        place = self._desk(record, index)
        task = place.noted("task")
        view = place.told(NodeView(index, task.get("host", ""), pid=task.get("pid", 0)))
        ended = place.noted("ended")
        if view.state == ENDED and ended:
            return view
        if ended and ended["code"] <= 128:  # it ended by itself, before it could write a journal
            return replace(view, state=ENDED, status=ended["code"], end="not started", report=place.last_words())
        if task and not ended and state:
            return replace(view, state=RUNNING, status=None, end="")
        if task:
            return view if view.state == ENDED else replace(view, state=LOST)
        return replace(view, state=PREPARED if state else LOST, report=f"SLURM says {state}" if state else "")

    def _goes_on(self, record: Record, index: int) -> bool:
        place = self._desk(record, index)
        return not place.noted("ended") and index in self._queue(record)

    def _desk(self, record: Record, index: int) -> Desk:
        return desk(self._root, record.submission, index)


def groups(job: Job) -> list[tuple[int, ...]]:
    """Give the allocations of a job: the nodes that its roles need together, each other one by itself."""
    everybody = seats(job)
    needed = tuple(seat.index for seat in everybody if seat.number < seat.role.size.minimum)
    return [needed, *((seat.index,) for seat in everybody if seat.index not in needed)]


def sbatch(job: Job, submission: str, indices: Sequence[int]) -> list[str]:
    """Give the command that queues some nodes."""
    return [
        "sbatch",
        "--output=/dev/null",
        "--export=ALL",
        *user_options(job),
        # Of two that say the same, the later holds: without these we would neither see nor end the job.
        "--parsable",
        f"--job-name={_name(submission, indices)}",
        f"--nodes={len(indices)}",
        "--ntasks-per-node=1",
        "--no-kill",  # a lost node is the agents' business
        "--no-requeue",
    ]


def user_options(job: Job) -> list[str]:
    """
    Give the words that the user has for sbatch.

    :raises UsageError: they cannot be told apart, or make something of the job that it is not
    """
    text = job.place_options.get("slurm_options", "")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--slurm_options is {text!r}, whose words cannot be told apart: {error}") from None
    for word in words:
        name = word.partition("=")[0]
        # sbatch takes the beginning of a name, too, if no other option begins like this.
        begins = len(name) > len("--a") and any(one.startswith(name) for one in REFUSED)
        if begins or word.startswith("-a"):
            raise UsageError(f"--slurm_options has {word}, which a job cannot have: --size says how many nodes it gets")
    return words


def script(root: Path, submission: str, indices: Sequence[int]) -> str:
    """Give what SLURM runs for some nodes."""
    task = [sys.executable, "-m", "lattice.jobs.slurm_task", str(root), submission]
    if len(indices) == 1 or list(indices) != list(range(len(indices))):
        task.append(",".join(map(str, indices)))
    step = ["srun", "--kill-on-bad-exit=0", "--wait=0", "--no-kill", "--mpi=none", "--cpu-bind=none", "--input=none"]
    return f"#!/bin/sh\nexec {shlex.join([*step, *task])}\n"


def _name(submission: str, indices: Sequence[int]) -> str:
    return f"{submission}.{indices[0]}"


def _names(record: Record) -> list[str]:
    return [_name(record.submission, indices) for indices in groups(record.job)]


def _indices(job: Job, name: str) -> tuple[int, ...]:
    first = int(name.rpartition(".")[2])
    return next(indices for indices in groups(job) if indices[0] == first)


def _cancel(*words: str) -> str:
    """Cancel; what fails is given back: a job may end at any moment, and then there is nothing to cancel."""
    try:
        _client(["scancel", "--quiet", *words])
    except SlurmFailed as error:
        return str(error)
    return ""


def _client(argv: Sequence[str], text: str = "") -> str:
    try:
        ended = subprocess.run(
            list(argv), input=text, capture_output=True, text=True, timeout=CLIENT_TIMEOUT, check=False
        )
    except FileNotFoundError:
        raise UsageError(f"there is no {argv[0]} on this machine: --on slurm needs SLURM's client commands") from None
    except subprocess.TimeoutExpired:
        raise SlurmFailed(f"{argv[0]} did not answer in {CLIENT_TIMEOUT:.0f}s; is SLURM's controller up?") from None
    if ended.returncode:
        raise SlurmFailed(f"{argv[0]} failed: {ended.stderr.strip() or ended.stdout.strip()}")
    return ended.stdout


def _nodes(indices: Sequence[int]) -> str:
    return f"node {indices[0]}" if len(indices) == 1 else f"{len(indices)} nodes"


def make() -> SlurmBackend:
    """Make the backend."""
    return SlurmBackend(home(os.environ).absolute())
