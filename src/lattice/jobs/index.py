"""What this user submitted: one file per job, written before anything else is made, so that nothing is forgotten."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lattice.errors import UsageError
from lattice.jobs.desk import unusable
from lattice.jobs.job import NAME, Job

SUBMITTING, SUBMITTED, KILLED = "submitting", "submitted", "killed"


@dataclass(frozen=True, slots=True)
class Record:
    """One submission, as the client remembers it."""

    job: Job
    submission: str
    """the job's name and something that no other submission of that name has"""
    state: str = SUBMITTING
    hosts: dict[int, str] = field(default_factory=dict)
    """of the nodes that were asked for"""
    facts: dict[str, Any] = field(default_factory=dict)
    """what the backend has to remember; may hold secrets"""
    since: float = 0.0

    def with_facts(self, **facts: Any) -> Record:
        """Remember something more."""
        return replace(self, facts={**self.facts, **facts})


class Index:
    """The jobs of this user on this machine."""

    def __init__(self, root: Path) -> None:
        self._folder = root / "jobs"

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """
        Let nobody else change a job meanwhile.

        :raises UsageError: somebody else does at the moment, that is no name, or the folder cannot be used
        """
        check_name(name)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            opened = (self._folder / f"{name}.lock").open("w")
        except OSError as error:
            raise unusable(self._folder, error) from None
        with opened as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(f"another command changes the job {name!r} at the moment; wait for its end") from None
            yield

    def find(self, name: str) -> Record | None:
        """Give what is known of a job; None for nothing."""
        check_name(name)
        try:
            fields = json.loads((self._folder / f"{name}.json").read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unusable(self._folder, error) from None
        return Record(
            job=Job.load(fields["job"]),
            submission=fields["submission"],
            state=fields["state"],
            hosts={int(index): host for index, host in fields["hosts"].items()},
            facts=fields["facts"],
            since=fields["since"],
        )

    def get(self, name: str) -> Record:
        """
        Give what is known of a job.

        :raises UsageError: there is no such job
        """
        found = self.find(name)
        if found is None:
            known = ", ".join(self.names()) or "none yet"
            raise UsageError(f"there is no job {name!r} (jobs of this user: {known})")
        return found

    def put(self, record: Record) -> None:
        """Remember a job from now on; the file is there whole or not at all."""
        path = self._folder / f"{record.job.name}.json"
        fresh = path.with_suffix(".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # it holds secrets
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({**asdict(record), "job": record.job.dump()}, file)
            file.flush()
            os.fsync(descriptor)
        fresh.replace(path)

    def forget(self, name: str) -> None:
        """Remember a job no longer."""
        (self._folder / f"{name}.json").unlink(missing_ok=True)

    def names(self) -> list[str]:
        """List all jobs."""
        try:
            return sorted(path.stem for path in self._folder.iterdir() if path.suffix == ".json")
        except FileNotFoundError:
            return []
        except OSError as error:  # of a folder that cannot be read, glob would say that it is empty
            raise unusable(self._folder, error) from None


def new_record(job: Job) -> Record:
    """Begin a submission."""
    return Record(job, f"{job.name}-{os.urandom(4).hex()}", since=time.time())


def check_name(name: str) -> None:
    """
    See that a job can have this name.

    :raises UsageError: it can't
    """
    if not NAME.fullmatch(name):
        raise UsageError(
            f"--name is {name!r}; accepted: 1 to 40 of a-z, 0-9 and -, with a letter or digit at both ends"
        )
