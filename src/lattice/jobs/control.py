"""What can be done with jobs: each verb once, for the command line and for whoever else wants it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from lattice.errors import LatticeError, UsageError
from lattice.jobs.backends import Backend, Say, Wanted, backend
from lattice.jobs.calls import together
from lattice.jobs.index import KILLED, SUBMITTED, SUBMITTING, Index, Record, new_record
from lattice.jobs.job import Job
from lattice.jobs.progress import OVER, UNKNOWN, WAITING, JobView, judge, waits_for
from lattice.jobs.roles import role_of, roles, seats_of
from lattice.jobs.unused import without_containers

POLL = 0.5
"""seconds between two looks at a job that is waited for"""
CONTAINED = ("kubernetes",)
"""places whose nodes have sidecars"""
OWN_CONTAINERS = ("node", "code")
"""what there is in a pod beside them: the agent, and what brings the code"""


class NotRolledBack(LatticeError):
    """A submission failed, and something of it could not be removed."""


class Control:
    """The jobs of one user."""

    def __init__(self, root: Path, say: Say, places: Callable[[str], Backend] = backend) -> None:
        self._index = Index(root)
        self._say = say
        self._places = places

    def submit(self, job: Job) -> Record:
        """
        Submit a job. The same job again is there already; half a submission is completed.

        :raises UsageError: another job of that name is there
        :raises LatticeError: it could not be submitted; nothing of it is left
        """
        with self._index.locked(job.name):
            record = self._index.find(job.name)
            if record is not None and not self._replaceable(record, job):
                self._say(f"{job.name} is there already, as it was submitted; nothing to do")
                return record
            if record is None or record.state != SUBMITTING or record.job.digest() != job.digest():
                if record is not None:
                    self._clear(record)
                record = new_record(job)
            self._index.put(record)
            if job.place not in CONTAINED and (notice := without_containers(job)):
                self._say(notice)
            place = self._places(job.place)
            try:
                record = replace(place.submit(record, self._index.put, self._say), state=SUBMITTED)
            except BaseException as error:
                self._roll_back(place, job.name, error)
                raise
            self._index.put(record)
            return record

    def record(self, name: str) -> Record:
        """Give what is remembered of a job."""
        return self._index.get(name)

    def look(self, name: str) -> tuple[Record, JobView]:
        """Tell how a job stands."""
        record = self._index.get(name)
        return record, self._view(record)

    def look_at_all(self) -> list[tuple[Record, JobView]]:
        """Tell how all jobs stand; of those whose place cannot be asked, why."""
        records = [record for name in self._index.names() if (record := self._index.find(name)) is not None]
        views = together([partial(self._view, record) for record in records])
        return [
            (record, JobView(UNKNOWN, None, (), trouble=str(view)) if isinstance(view, LatticeError) else view)
            for record, view in zip(records, views, strict=True)
        ]

    def names(self) -> list[str]:
        """List all jobs."""
        return self._index.names()

    def logs(
        self, name: str, *, rank: int | None = None, role: str = "", container: str = "", follow: bool
    ) -> Iterator[tuple[int, bytes]]:
        """
        Give what a job's nodes wrote: which node, whole lines.

        :param rank: one worker's own output
        :param role: only that of nodes of this role
        :param container: what a sidecar of this name wrote instead
        :raises UsageError: there is no such job, role or sidecar
        """
        record = self._index.get(name)
        if container and record.job.place not in CONTAINED:
            raise UsageError(f"{name} runs {record.job.place}, where there are no containers: leave out --container")
        parts = (role_of(record.job, role),) if role else roles(record.job)
        if container and container not in OWN_CONTAINERS:
            known = {one.name: None for part in parts for one in part.sidecars}
            if container not in known:
                raise UsageError(f"{name} has no sidecar {container!r}; there are {', '.join(known) or 'none'}")
            parts = tuple(part for part in parts if container in [one.name for one in part.sidecars])
        some = bool(role or container)
        nodes = frozenset(seat.index for part in parts for seat in seats_of(record.job, part)) if some else None
        return self._places(record.job.place).logs(record, Wanted(rank, nodes, container), follow=follow)

    def scale(self, name: str, nodes: int, role: str = "") -> None:
        """
        Have another number of nodes, of a role if there are several.

        :raises UsageError: the job does not allow so many, or so few, or has ended
        """
        with self._index.locked(name):
            record = self._index.get(name)
            part = role_of(record.job, role)
            size = part.size
            if not size.minimum <= nodes <= size.maximum:
                of = f"role {part.name} of {name}" if record.job.roles else name
                raise UsageError(f"{of} was submitted with --size {size}: it can have {size.minimum} to {size.maximum}")
            state = self._view(record).state
            if state in OVER:
                raise UsageError(f"{name} has ended ({state}); submit it again")
            self._index.put(self._places(record.job.place).scale(record, part, nodes, self._index.put, self._say))

    def kill(self, name: str, grace: float) -> JobView:
        """
        End a job: its workers get their time, then it is killed. One that has ended already is as good.

        :raises LatticeError: some of it could not be ended
        """
        with self._index.locked(name):
            record = replace(self._index.get(name), state=KILLED)
            self._index.put(record)
            if grace:
                self._say(f"ending {name}: its workers have their time to save, {grace:g}s at most")
            nodes = self._places(record.job.place).kill(record, grace, self._say)
            view = judge(nodes, killed=True, job=record.job)
            if view.state not in OVER:
                left = "\n".join(f"  node {node.index} on {node.host}: {node.report or node.state}" for node in nodes)
                raise LatticeError(
                    f"{name} could not be ended everywhere; try again when these can be reached:\n{left}"
                )
            return view

    def forget(self, name: str, *, force: bool = False) -> None:
        """
        Delete all that is left of a job that has ended: logs, code, and what is remembered of it.

        :param force: forget it although something could not be deleted
        :raises UsageError: it has not ended
        :raises LatticeError: something could not be deleted
        """
        with self._index.locked(name):
            record = self._index.get(name)
            view = self._view(record)
            if view.state not in OVER and record.state == SUBMITTED:
                raise UsageError(f"{name} is {view.state}; end it first: lattice kill {name}")
            left = self._places(record.job.place).remove(record, self._say)
            if left and not force:
                step = f"Try again when it can be, or leave it: lattice forget --force {name}"
                raise LatticeError(f"some of {name} could not be deleted:\n" + "\n".join((*left, step)))
            if left:
                self._say(f"some of {name} is left behind:\n" + "\n".join(left))
            self._index.forget(name)

    def wait(self, name: str, timeout: float | None, *, only_start: bool = False) -> JobView:
        """
        Wait for the end of a job, and tell of what it waits for.

        :param timeout: seconds to wait at most; None for no limit
        :param only_start: wait only until its workers have started
        :raises TimeoutError: it did not end in that time
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        told = ""
        while (view := self.look(name)[1]).state not in OVER:
            if only_start and view.state != WAITING:
                break
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{name} is {view.state} after {timeout:g}s; it goes on")
            if (words := waits_for(view)) != told:
                told = words
                self._say(f"{name} is {view.state}{words}")
            time.sleep(POLL)
        return view

    def _view(self, record: Record) -> JobView:
        nodes = self._places(record.job.place).look(record) if record.hosts else []
        return judge(nodes, killed=record.state == KILLED, job=record.job)

    def _replaceable(self, record: Record, job: Job) -> bool:
        """Tell whether a name may be used anew; false if the very job is there."""
        same = record.job.digest() == job.digest()
        if record.state == SUBMITTING:
            if same:
                return True
            raise UsageError(f"{job.name} was half submitted, as another job; remove that: lattice kill {job.name}")
        state = self._view(record).state
        if state in OVER:
            return True
        if same:
            return False
        raise UsageError(
            f"{job.name} is {state}, and was submitted differently; end it (lattice kill {job.name}), or take another "
            "--name"
        )

    def _clear(self, record: Record) -> None:
        """
        Delete what is left of a job whose name is used anew: nobody could ask for it any more.

        :raises LatticeError: something could not be deleted; the job is remembered, so that it still has a name
        """
        left = self._places(record.job.place).remove(record, self._say, anew=True) if record.hosts else []
        if left:
            name = record.job.name
            step = f"Try again when it can be, or leave it: lattice forget --force {name}"
            raise LatticeError(
                f"some of the last {name} could not be deleted, so its name is not free:\n" + "\n".join((*left, step))
            )

    def _roll_back(self, place: Backend, name: str, error: BaseException) -> None:
        record = self._index.get(name)
        left = place.remove(record, self._say) if record.hosts else []
        if left:
            raise NotRolledBack(
                f"{error}\nWhat was made could not be removed; try again: lattice kill {name}\n" + "\n".join(left)
            ) from error
        self._index.forget(name)
