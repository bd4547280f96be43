"""The one class that users see."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Self, TypeVar

from lattice.checkpoint import log, plain
from lattice.checkpoint.client import NoKeeper, client
from lattice.checkpoint.history import History, Opened, Policy, folder_of
from lattice.checkpoint.interval import advice
from lattice.checkpoint.ranks import Ranks, ranks
from lattice.checkpoint.source import Damaged, Source, in_memory
from lattice.checkpoint.storage import open_storage, place
from lattice.errors import LatticeError, UsageError
from lattice.worker import Notice, on_notice

S = TypeVar("S")
SETTLING = 15.0
"""seconds in which the keepers of other nodes may finish what a lost round had begun"""
SOON = 5.0
"""seconds that a storage may take to answer if there is something to go on from without it"""
PAUSE = 1.0
"""seconds between two attempts to read a storage that does not answer"""


class CheckpointError(LatticeError):
    """There are checkpoints, and none of them can be used; or the storage did not answer."""


class Checkpointer:
    """
    Saves a job's state, and brings it back.

    ``save`` returns after a copy in memory. The rest is done by a process of this node's agent, which outlives the
    workers: a crash right after ``save`` loses nothing.
    """

    def __init__(
        self,
        where: str | os.PathLike[str],
        *,
        keep_last: int = 3,
        keep_every: int = 0,
        keep_best: int = 0,
        best: str = "max",
        buffers: int = 3,
        timeout: float = 600.0,
    ) -> None:
        """
        Choose a place.

        :param where: a folder, ``s3://bucket/prefix``, or a URL that fsspec knows; with several nodes all must reach it
        :param keep_last: so many of the newest checkpoints stay
        :param keep_every: those whose step is a multiple of it stay as well; 0 for none
        :param keep_best: so many with the best metric stay as well
        :param best: whether the highest metric (``max``) or the lowest (``min``) is the best
        :param buffers: copies of the state in memory at most; a save waits while all of them are being written
        :param timeout: seconds for which ``restore`` tries to reach the storage
        :raises UsageError: a setting is wrong, or something is not installed that the place needs
        """
        if best not in ("max", "min"):
            raise UsageError(f"best={best!r} is neither 'max' nor 'min'.")
        if keep_last < 1 or keep_every < 0 or keep_best < 0 or buffers < 2:
            raise UsageError("keep_last must be 1 or more, keep_every and keep_best 0 or more, buffers 2 or more.")
        self.where = place(where)
        """the place, in one spelling"""
        self._policy = asdict(Policy(keep_last, keep_every, keep_best, best == "min"))
        self._timeout = timeout
        self._storage = open_storage(self.where)
        self._client = client(self.where, buffers)
        self._token = os.urandom(6).hex()
        self._agreed = False
        self._opened: Opened | None = None
        self._counts: dict[int, int] = {}
        self._from_memory = False
        self._source = ""

    # -- saving ------------------------------------------------------------------------------------------------------

    @property
    def committed_step(self) -> int | None:
        """
        Return the step of the newest checkpoint, saved or restored by this object, that the log in the storage has.

        The log has a checkpoint once the parts of all ranks are written. From then on it survives the loss of every
        node, and every later ``restore`` finds it or a newer one. Until then only this node's memory has it, and the
        log may still refuse it: another round may have taken over.

        Reading this never waits for the storage. Only rank 0 is told, whose part is added to the log; for other ranks
        it stays None.

        :return: None if the log has none of them so far
        """
        return self._client.committed_step()

    def save(self, step: int, state: Any, metric: float | None = None) -> bool:
        """
        Save a state: numbers, text, bytes, lists, tuples, dicts and numpy arrays, or a dict with torch tensors, modules
        and optimizers.

        With a process group of torch all ranks call it, and each saves what it has of torch's, or rank 0 a plain state;
        else rank 0 saves, and for the other ranks it does nothing. A storage that does not answer never fails it.

        :param step: how far training has come
        :param state: read before this returns, so it may change afterwards
        :param metric: how good it is, for ``keep_best``
        :return: whether a crash does not lose it any more; if not, that was said, and the next save may go better
        :raises UsageError: something in the state cannot be saved
        """
        began = time.monotonic()
        me = ranks(self._token)
        if not isinstance(step, int) or step < 0:
            raise UsageError(f"step {step!r} is no number of steps.")
        self._agree(me)
        if not me.together and me.rank:
            return True
        again = self._counts.get(step, 0)
        self._counts[step] = again + 1
        folder = folder_of(step, self._token, again)
        try:
            self._hand_over(me, folder, step, state, metric, began)
        except (NoKeeper, OSError) as error:
            _say(f"CHECKPOINT OF STEP {step} NOT TAKEN: {error}. Training goes on without it.")
            return False
        return True

    def _hand_over(self, me: Ranks, folder: str, step: int, state: Any, metric: float | None, began: float) -> None:
        arena = self._client.arena()
        try:
            if _has_tensors(state):
                from lattice.checkpoint import sharded

                sharded.save(state, arena, folder, together=me.together, writes_keys=me.rank == 0)
            elif not me.together or me.rank == 0:  # the files of all ranks would have the same names
                plain.save(state, arena)
        except BaseException:
            self._client.give_up(arena)
            raise
        facts = {
            "folder": folder,
            "step": step,
            "rank": me.rank if me.together else 0,
            "world": me.world if me.together else 1,
            "metric": None if metric is None else float(metric),
            **self._who(me),
            "source": self._source,
            "policy": self._policy,
            "at": time.time(),
            "stall": round(time.monotonic() - began, 6),
        }
        self._client.keep(arena, facts)
        if facts["rank"] == 0:
            self._client.watch_commit(folder, step)

    def save_on_notice(self, make: Callable[[], tuple[int, Any]]) -> None:
        """
        Save when this worker is given notice of a planned stop: its node leaves, or newcomers are let in.

        For one process by itself. Workers that save together look at :func:`lattice.notice` at the end of a step, and
        agree on it; docs/checkpoints shows how.

        :param make: gives step and state; called in the main thread, between two instructions of the script
        """

        def noticed(_: Notice) -> None:
            self.save(*make())

        on_notice(noticed)

    # -- restoring ---------------------------------------------------------------------------------------------------

    def restore(self, default: S) -> tuple[S, int]:
        """
        Bring the newest state back: from this node's memory if it is there, else from the storage.

        From here on rounds that came before this one cannot add checkpoints any more.

        :param default: what to begin with. Modules, optimizers and other things with ``load_state_dict`` in it are
            loaded; sharded tensors are filled, for whatever number of ranks there is now
        :return: the state, and its step; ``default`` and 0 if nothing was saved yet
        :raises CheckpointError: there are checkpoints, but none can be read
        """
        me = ranks(self._token)
        self._agree(me)
        if not me.together and me.rank:
            return self._follow(me, default)
        problems: list[str] = []
        options = self._options(me) if me.rank == 0 else iter(())
        while True:
            chosen = me.tell_all(next(options, None) if me.rank == 0 else None)
            if chosen is None:
                break
            folder, step, files = chosen
            state, problem = self._load(me, default, folder, files)
            problem = me.all_agree(problem)
            if not problem:
                self._source = folder
                if me.rank == 0:
                    self._told_of(step)
                return state, step
            self._client.begin_commits(None)
            problems.append(f"step {step}: {problem}")
            if me.rank == 0:
                _say(f"THE CHECKPOINT OF STEP {step} CANNOT BE USED: {problem}. Trying the one before it.")
        if problems:
            raise CheckpointError(
                f"none of the {len(problems)} checkpoints at {self.where} can be used:\n  " + "\n  ".join(problems)
            )
        return default, 0

    def steps(self) -> list[int]:
        """List the steps of the checkpoints in the storage, the newest first."""
        return [entry.step for entry in self._patiently(lambda: log.read(self._storage)).saved]

    def wait(self, timeout: float | None = None) -> bool:
        """
        Wait until everything that was saved is in the storage.

        :param timeout: seconds; for ever without
        :return: whether it is
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = 3600.0 if deadline is None else deadline - time.monotonic()
            if left <= 0:
                return False
            if not self._client.wait(left):
                return True

    def close(self) -> None:
        """Wait until everything is written, and let go of the memory."""
        self.wait()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _agree(self, me: Ranks) -> None:
        """Have one token in all ranks of a process group, from when there is one."""
        if me.together and not self._agreed:
            self._token, self._agreed = me.tell_all(self._token), True

    def _who(self, me: Ranks) -> dict[str, Any]:
        """Tell the keeper on whose behalf it writes."""
        return {
            "token": self._token,
            "run": me.run,
            "round": me.round,
            "restarts": me.restarts,
            "opened": self._opened is not None,
        }

    def _options(self, me: Ranks) -> Iterator[tuple[str, int, Mapping[str, tuple[int, str]]]]:
        """Give the checkpoints to try, the best first: folder, step, and files if it is in the storage."""
        held = self._client.held()
        whole = in_memory(held, History())
        now = self._soon() if whole is not None else None
        if whole is not None and now is None:
            _say(f"{self.where} does not answer, and is not needed: this node has the newest checkpoint in memory")
            yield self._adopted(me, whole)
        now = now or self._patiently(lambda: log.read(self._storage))
        if in_memory(held, now) is None and not all(found["complete"] for found in held):
            self._client.wait(SETTLING)  # of several nodes: what they have is not complete before all is written
            now = self._patiently(lambda: log.read(self._storage))
        newest = in_memory(held, now)
        if newest is not None and newest["folder"] not in {entry.folder for entry in now.saved}:
            self._open(me, now, newest["folder"])
            yield self._adopted(me, newest)
        passed: set[str] = set()
        while True:
            entry = next((entry for entry in now.saved if entry.folder not in passed), None)
            if entry is None and (passed or newest is not None):
                return
            later = self._open(me, now, entry.folder if entry is not None else "")
            if later is not None and _newest_folder(later) != _newest_folder(now):
                now = later  # the round before has added one since the log was read: nothing newer can come now
                continue
            if entry is None:
                return
            passed.add(entry.folder)
            self._client.begin_commits(entry.step)
            yield entry.folder, entry.step, entry.files

    def _adopted(self, me: Ranks, found: dict[str, Any]) -> tuple[str, int, Mapping[str, tuple[int, str]]]:
        """Go on from what is in memory: it is written on behalf of this round from here on."""
        self._client.begin_commits(None)
        self._client.watch_commit(found["folder"], found["step"])
        self._client.adopt(found["folder"], self._who(me))
        return found["folder"], found["step"], {}

    def _soon(self) -> History | None:
        """Read the log, if the storage answers soon."""
        box: list[History] = []

        def read() -> None:
            try:
                box.append(log.read(self._storage))
            except OSError:
                pass

        thread = threading.Thread(target=read, name="checkpoint log", daemon=True)
        thread.start()
        thread.join(SOON)
        return box[0] if box else None

    def _open(self, me: Ranks, now: History, source: str) -> History | None:
        """
        Take over: no earlier round adds anything from here on. If that cannot be written, the keeper will.

        :return: the log with the entry; None if it could not be written
        """
        before, at = now.opening, time.time()
        since = before.since if before is not None and before.run == me.run else at
        entry = Opened(self._token, me.run, me.round, at, source, me.restarts, since)
        try:
            later = log.add(self._storage, entry)
        except OSError as error:
            _say(f"{self.where} can be read, but not written: {error}. Training goes on, and saving is tried again.")
            return None
        self._opened = entry
        return later

    def _load(self, me: Ranks, default: S, folder: str, files: Mapping[str, tuple[int, str]]) -> tuple[S, str]:
        """Give the state, or why it cannot be had."""
        source = Source(self._storage, folder, files, self._client.fetch(folder))
        try:
            # Every file is looked at by some rank before anything of the state is touched.
            self._from_memory = source.from_memory == set(source.names)
            mine = source.names[me.rank :: me.world] if me.together else source.names
            problem = me.all_agree(self._checked(source, mine))
            if problem:
                return default, problem
            if plain.TREE in source.names:
                return plain.load(source.read), ""
            from lattice.checkpoint import sharded

            if not isinstance(default, Mapping):
                raise UsageError("the checkpoint has tensors: restore needs a dict to tell what goes where.")
            return sharded.load(default, source.names, source.read, folder, together=me.together), ""
        except (Damaged, OSError) as error:
            return default, str(error)
        finally:
            source.close()

    def _checked(self, source: Source, names: list[str]) -> str:
        try:
            for name in names:
                self._patiently(lambda name=name: source.read(name))  # type: ignore[misc]
        except (Damaged, CheckpointError) as error:
            return str(error)
        return ""

    def _follow(self, me: Ranks, default: S) -> tuple[S, int]:
        """Take what rank 0 took: the log says what that was."""
        deadline = time.monotonic() + self._timeout
        passed: set[str] = set()
        while time.monotonic() < deadline:
            now = self._patiently(lambda: log.read(self._storage))
            opening = now.opening
            if opening is None or (opening.run, opening.round) != (me.run, me.round) or opening.source in passed:
                time.sleep(0.1)
                continue
            if not opening.source:
                return default, 0
            entry = next((entry for entry in now.saved if entry.folder == opening.source), None)
            if entry is not None:
                state, problem = self._load(me, default, entry.folder, entry.files)
                if not problem:
                    return state, entry.step
                passed.add(entry.folder)
            time.sleep(0.1)
        raise CheckpointError(f"rank 0 restored nothing from {self.where} within {self._timeout:.0f}s: does it try?")

    def _told_of(self, step: int) -> None:
        _say(f"going on from step {step}, from {'memory' if self._from_memory else self.where}")
        suggested = None
        if self._opened is not None and self._opened.restarts:
            saved = self._patiently(lambda: log.read(self._storage)).saved
            suggested = advice(self._opened, saved)
        if suggested is not None:
            _say(str(suggested))

    def _patiently(self, call: Callable[[], Any]) -> Any:
        """Try until the storage answers."""
        deadline, said = time.monotonic() + self._timeout, ""
        while True:
            try:
                return call()
            except OSError as error:
                text = str(error)
                if time.monotonic() > deadline:
                    raise CheckpointError(f"{self.where} did not answer for {self._timeout:.0f}s: {text}") from error
                if text != said:
                    said = text
                    _say(f"{self.where} does not answer, trying for {self._timeout:.0f}s: {text}")
            time.sleep(PAUSE)


def _newest_folder(now: History) -> str:
    return now.saved[0].folder if now.saved else ""


def _has_tensors(state: Any) -> bool:
    if "torch" not in sys.modules:
        return False
    from lattice.checkpoint import sharded

    return sharded.has_tensors(state)


def _say(text: str) -> None:
    print(f"lattice: checkpoints: {text}", file=sys.stderr, flush=True)
