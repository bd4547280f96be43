"""
What the keeper of a node holds for one place, and the thread that writes it there.

A *part* is what one rank saved of one checkpoint. Parts are written in the order in which they came. Whoever holds the
part of rank 0 adds the checkpoint to the log, once the parts of all ranks are written, wherever their keepers are.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lattice.checkpoint import log
from lattice.checkpoint.history import Opened, Policy, Saved
from lattice.checkpoint.memory import Kept
from lattice.checkpoint.storage import Storage, open_storage

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
LOOK = 0.2
"""seconds between two looks for the parts of other nodes"""
DIGESTED = 8 << 20
WAITING, WRITTEN, COMPLETE, REFUSED = "waiting", "written", "complete", "refused"
Digests = dict[str, tuple[int, str]]


@dataclass(slots=True, eq=False)
class Part:
    """What one rank saved."""

    facts: dict[str, Any]
    """folder, source, step, rank, world, metric, stall, token, run, round, restarts, opened, policy: as it said"""
    kept: Kept
    release: Callable[[], None]
    """lets the worker use the memory again"""
    report_commit: Callable[[], None] = lambda: None
    """called, for rank 0, once the log has the entry of the checkpoint; must not wait"""
    state: str = WAITING
    digests: Digests = field(default_factory=dict)
    here: bool = True
    """whether it is in memory; else only in the storage"""

    @property
    def folder(self) -> str:
        """Name the checkpoint that it belongs to."""
        return str(self.facts["folder"])

    @property
    def rank(self) -> int:
        """Tell whose it is."""
        return int(self.facts["rank"])

    def let_go(self) -> None:
        """Let the worker have the memory back."""
        if self.here:
            self.here = False
            self.kept.close()
            self.release()


class Shelf:
    """Everything of one place."""

    def __init__(self, where: str, say: Callable[[str], None], changed: Callable[[], None]) -> None:
        """
        Begin to write.

        :param where: the place
        :param say: takes words for the user
        :param changed: called whenever something was done, from another thread
        """
        self._where = where
        self._say = say
        self._changed = changed
        self._storage: Storage | None = None
        self._parts: list[Part] = []
        self._opened: set[str] = set()
        self._condition = threading.Condition()
        self._busy = False
        self.problem = ""
        """why the last attempt failed"""
        self.attempts = 0
        """that failed"""
        self._thread = threading.Thread(target=self._run, name=f"writer of {where}", daemon=True)
        self._thread.start()

    # -- called by the keeper ----------------------------------------------------------------------------------------

    def add(self, part: Part) -> None:
        """Take a part, and write it."""
        with self._condition:
            self._parts.append(part)
            if self.problem:
                self._keep_newest()
            self._condition.notify()

    def idle(self) -> bool:
        """Tell whether all that was taken is written, and complete as far as this node knows."""
        with self._condition:
            return not self._busy and not any(_unfinished(part) for part in self._parts)

    def held(self) -> list[dict[str, Any]]:
        """Tell which checkpoints are held in memory, and of which ranks; the newest last."""
        with self._condition:
            found: dict[str, dict[str, Any]] = {}
            for part in self._parts:
                known = {name: part.facts[name] for name in ("folder", "step", "world", "token", "run", "round")}
                judged = {"ranks": [], "complete": True, "refused": False, "opened": False}
                mine = found.setdefault(part.folder, {**known, **judged})
                mine["ranks"] += [part.rank] if part.here else []
                mine["complete"] &= part.state == COMPLETE
                mine["refused"] |= part.state == REFUSED
                mine["opened"] |= bool(part.facts["opened"]) or part.facts["token"] in self._opened
            return list(found.values())

    def parts(self, folder: str) -> list[tuple[tuple[int, int], int]]:
        """Give what is held of a checkpoint: tables, and descriptors that are the caller's to close."""
        with self._condition:  # the writer may let go of a part as soon as this is over
            found = [part.kept for part in self._parts if part.folder == folder and part.here]
            return [(kept.table, os.dup(kept.descriptor)) for kept in found]

    def adopt(self, folder: str, heir: dict[str, Any], report_commit: Callable[[], None]) -> None:
        """
        Let a checkpoint be added by another round, which goes on from it.

        :param heir: token, run, round and restarts of that round, and whether it has opened the log; else the keeper
            does that as well, and what it writes then must be of that round
        :param report_commit: called once the log has the checkpoint, and at once if it has it already
        """
        with self._condition:
            for part in self._parts:
                if part.folder != folder:
                    continue
                if part.rank == 0:
                    part.report_commit = report_commit
                if part.state != COMPLETE:
                    # Not changed but replaced: the writer may be about to read several of them.
                    part.facts = {**part.facts, **heir, "source": folder}
                    part.state = WRITTEN if part.digests else WAITING
                elif part.rank == 0:
                    report_commit()
            self._condition.notify()

    def give_back(self, worker: object) -> None:
        """
        Let a worker have memory back that is held only to restore from.

        If there is none, the oldest that is written and waits for other nodes, which may never write theirs: it can
        still be completed, but is not in memory any more.
        """
        with self._condition:
            mine = [part for part in self._parts if part.facts["worker"] is worker and part.here]
            done = [part for part in mine if not _unfinished(part)]
            self._drop(done)
            for part in [part for part in mine if part.state == WRITTEN][: 0 if done else 1]:
                part.let_go()

    def forget_worker(self, worker: object) -> None:
        """Hear that a worker has gone: nobody waits for its memory."""
        with self._condition:
            for part in self._parts:
                if part.facts["worker"] is worker:
                    part.release = _nobody

    # -- the writer --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            with self._condition:
                self._busy = False
                part = next((part for part in self._parts if part.state == WAITING), None)
                open_ends = [part for part in self._parts if part.state == WRITTEN and part.rank == 0]
                if part is None and not open_ends:
                    self._changed()
                    self._condition.wait()
                    continue
                self._busy = part is not None
            try:
                if self._storage is None:
                    self._storage = open_storage(self._where)
                if part is not None:
                    self._write(self._storage, part)
                for first in open_ends + ([part] if part is not None and part.rank == 0 else []):
                    self._complete(self._storage, first)
            except Exception as error:  # whatever a storage comes up with: training goes on, and it is tried again
                self._failed(error, pause)
                with self._condition:
                    self._condition.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                if self.problem:
                    self._say(f"checkpoints are written to {self._where} again")
                self.problem, pause = "", FIRST_PAUSE
                self._changed()
                if part is None:
                    with self._condition:
                        if not any(part.state == WAITING for part in self._parts):
                            self._condition.wait(LOOK)

    def _failed(self, error: Exception, pause: float) -> None:
        problem = getattr(error, "strerror", None) or str(error)
        if problem != self.problem:
            self._say(
                f"CHECKPOINTS ARE NOT WRITTEN to {self._where}: {problem}. Training goes on, the newest is held in "
                f"memory and tried again in {pause:.0f}s, and then less often."
            )
        with self._condition:
            self.problem = problem
            self.attempts += 1
            self._keep_newest()
        self._changed()

    def _keep_newest(self) -> None:
        """Let go of what could not be written so far, and is not the newest: training must not wait for its memory."""
        self._drop(
            part
            for part in self._parts
            if _unfinished(part) and any(_older(part, other) for other in self._parts if _unfinished(other))
        )

    def _write(self, storage: Storage, part: Part) -> None:
        """Write one part, and what it consists of."""
        if part.rank == 0:
            token = str(part.facts["token"])
            try:
                self._open(storage, part)  # first, so that nobody who writes here takes the folder for a stray
            except log.TakenOver as error:
                self._refuse(part, token, error)
                return
        digests: Digests = {}
        for name, data in part.kept.files.items():
            storage.write(f"{part.folder}/{name}", data)
            digests[name] = (len(data), digest(data))
        with self._condition:
            if part not in self._parts:
                return  # dropped for a newer one: its memory may be in use again, and these the digests of that
        if part.facts["world"] > 1:
            storage.write(_list_of(part.folder, part.rank), memoryview(json.dumps(digests).encode()))
        with self._condition:
            if part not in self._parts:
                return
            part.digests = digests
            part.state = WRITTEN if part.rank == 0 else COMPLETE
            if part.rank:
                self._supersede(part)

    def _complete(self, storage: Storage, first: Part) -> None:
        """Add a checkpoint to the log if all of it is written."""
        facts = first.facts
        files = self._all_files(storage, first)
        if files is None or first.state != WRITTEN:
            return
        token = str(facts["token"])
        try:
            self._open(storage, first)
            saved = Saved(
                token, facts["step"], first.folder, files, facts["at"], metric=facts["metric"], stall=facts["stall"]
            )
            now = log.add(storage, saved)
        except log.TakenOver as error:
            self._refuse(first, token, error)
            return
        with self._condition:
            for part in self._parts:
                if part.folder == first.folder:
                    part.state = COMPLETE
            first.report_commit()  # before the lock is free: who hears that all is written has heard this
            self._supersede(first)
        log.tidy(storage, now, Policy(**facts["policy"]), token)

    def _open(self, storage: Storage, part: Part) -> None:
        """
        Take over in the log for the round of a part, unless that was done.

        :raises log.TakenOver: a later round did
        """
        facts = part.facts
        token = str(facts["token"])
        if not facts["opened"] and token not in self._opened:
            log.add(storage, opening(facts))
        self._opened.add(token)

    def _refuse(self, part: Part, token: str, why: log.TakenOver) -> None:
        with self._condition:
            if part.facts["token"] != token:
                return  # adopted meanwhile
            part.state = REFUSED
        self._say(f"the checkpoint of step {part.facts['step']} was not added to {self._where}: {why}")

    def _all_files(self, storage: Storage, first: Part) -> Digests | None:
        """Give the files of all ranks; None while some are not written."""
        world = int(first.facts["world"])
        with self._condition:
            here = {part.rank: part.digests for part in self._parts if part.folder == first.folder and part.digests}
        if len(here) < world:
            there = set(storage.names(first.folder))
            for rank in set(range(world)) - set(here):
                if _list_of("", rank)[1:] not in there:
                    return None
                listed = json.loads(bytes(storage.read(_list_of(first.folder, rank))))
                here[rank] = {name: (size, value) for name, (size, value) in listed.items()}
        return {name: facts for digests in here.values() for name, facts in digests.items()}

    def _supersede(self, part: Part) -> None:
        """Let go of what is older than a part that is written; of rank 0, than a checkpoint that is complete."""
        self._drop(each for each in self._parts if _older(each, part) and each.state != WAITING)

    def _drop(self, parts: Any) -> None:
        for part in list(parts):
            self._parts.remove(part)
            part.let_go()


def _older(part: Part, than: Part) -> bool:
    """Tell whether a part was made before another one, of the same rank or of a round before."""
    if part.facts["number"] >= than.facts["number"]:
        return False
    return part.rank == than.rank or part.facts["token"] != than.facts["token"]


def _unfinished(part: Part) -> bool:
    return part.state == WAITING or (part.state == WRITTEN and part.rank == 0)


def _nobody() -> None:
    pass


def _list_of(folder: str, rank: int) -> str:
    return f"{folder}/part_{rank}.json"


def opening(facts: dict[str, Any]) -> Opened:
    """Make the entry by which a round takes over."""
    return Opened(
        facts["token"],
        facts["run"],
        facts["round"],
        facts.get("opened_at") or time.time(),
        facts.get("source", ""),
        facts["restarts"],
        facts.get("since") or facts.get("opened_at") or time.time(),
    )


def digest(data: memoryview) -> str:
    """Give the SHA-256."""
    found = hashlib.sha256()
    for at in range(0, len(data), DIGESTED):
        found.update(data[at : at + DIGESTED])
    return found.hexdigest()
