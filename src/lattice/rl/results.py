"""
The results of a run, in open formats, written in the background so that no slow disk or network holds up learning.

=====================================  =================================================================================
``params.json``                        what the run was started with
``metrics.jsonl``                      one line every few seconds, see ``docs/rl.md``
``rewards/N.jsonl``                    one line for each episode that was taken in before checkpoint N, since the last
``checkpoints/epoch_N.npz``            the policy's parameters every so many steps
``checkpoints/rwd_R_id_P.npz``         the same for each new best reward R of an evaluation; P is the policy's version
=====================================  =================================================================================
"""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any

import numpy as np

from lattice.rl.interfaces import Arrays
from lattice.rl.places import Place

LONGEST_PAUSE = 30.0
MOST_WAITING = 1 << 30
"""bytes that may wait for a place that does not answer; policies beyond are given up, oldest first"""


class Results:
    """Writes results; whatever fails is said, and tried again."""

    def __init__(self, where: str | PathLike[str] | None, say: Callable[[str], None] | None = None) -> None:
        """
        Begin.

        :param where: see :class:`lattice.rl.places.Place`; None to write nothing
        :param say: takes a warning
        """
        self._writer = None if where is None else _Writer(Place(where), say or _warn, str(where))

    def parameters(self, run: Mapping[str, Any]) -> None:
        """Write what the run was started with."""
        self._write("params.json", json.dumps(dict(run), indent=1, default=str).encode() + b"\n")

    def epoch(self, number: int, parameters: Arrays) -> None:
        """Write the policy of an epoch."""
        self._write(f"checkpoints/epoch_{number}.npz", packed(parameters))

    def best(self, reward: float, version: int, parameters: Arrays) -> None:
        """Write the policy of a new best reward."""
        self._write(f"checkpoints/rwd_{reward:.2f}_id_{version}.npz", packed(parameters))

    def rewards(self, number: int, text: bytes) -> None:
        """
        Write the episodes of a checkpoint, as :func:`lines`: the same file again if the checkpoint is restored.

        Also if there are none: a life whose checkpoint was lost may have left a file of that number.
        """
        self._write(f"rewards/{number:08}.jsonl", text)

    def unwritten(self) -> dict[str, bytes]:
        """Give what :meth:`rewards` was given and is not written yet, by number: a checkpoint has to keep it."""
        waiting = {} if self._writer is None else self._writer.waiting()
        return {name[8:16]: data for name, data in waiting.items() if name.startswith("rewards/")}

    def metrics(self, row: Mapping[str, Any]) -> None:
        """Add a line of metrics."""
        if self._writer is not None:
            self._writer.put("metrics.jsonl", lines([row]), append=True)

    def close(self, within: float = 60.0) -> int:
        """
        Wait until all is written.

        :param within: seconds to wait at most
        :return: how many files are not
        """
        return 0 if self._writer is None else self._writer.close(within)

    def _write(self, name: str, data: bytes) -> None:
        if self._writer is not None:
            self._writer.put(name, data)


def lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Write JSON lines."""
    return b"".join(json.dumps(dict(row), separators=(",", ":")).encode() + b"\n" for row in rows)


def packed(parameters: Arrays) -> bytes:
    """Write parameters as numpy's archive, which any numpy reads without pickles."""
    made = io.BytesIO()
    np.savez(made, allow_pickle=False, **{name: np.asarray(array) for name, array in parameters.items()})
    return made.getvalue()


def unpacked(data: bytes) -> dict[str, Any]:
    """Read such an archive."""
    with np.load(io.BytesIO(data), allow_pickle=False) as found:
        return dict(found)


class _Writer:
    """One thread that writes in order, and does not give up."""

    def __init__(self, where: Place, say: Callable[[str], None], name: str) -> None:
        self._place, self._say, self._name = where, say, name
        self._waiting: deque[tuple[str, bytes, bool]] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="lattice.rl.results", daemon=True)
        self._thread.start()

    def put(self, name: str, data: bytes, append: bool = False) -> None:
        with self._changed:
            self._waiting.append((name, data, append))
            while sum(len(one[1]) for one in self._waiting) > MOST_WAITING and self._give_up_one():
                pass
            self._changed.notify_all()

    def waiting(self) -> dict[str, bytes]:
        with self._changed:
            return {name: data for name, data, _ in self._waiting}

    def close(self, within: float) -> int:
        until = time.monotonic() + within
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            while self._waiting and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            missing = len(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        self._thread.join(5)
        if missing:
            self._say(f"WARNING: {missing} results were not written to {self._name}")
        return missing

    def _run(self) -> None:
        pause = 0.0
        while True:
            with self._changed:
                if pause:
                    self._changed.wait_for(lambda: self._closing and not self._waiting, pause)
                else:
                    self._changed.wait_for(lambda: self._closing or self._waiting)
                if not self._waiting:
                    if self._closing:
                        return
                    continue
                name, data, append = self._waiting[0]
            try:
                (self._place.append if append else self._place.write)(name, data)
            except Exception as error:  # whatever a place has: a full disk, a network that is away, a missing right
                pause = min(pause * 2 or 0.5, LONGEST_PAUSE)
                self._say(f"WARNING: {name} could not be written to {self._name} ({error}); again in {pause:g}s")
                continue
            pause = 0.0
            with self._changed:
                if self._waiting and self._waiting[0][0] == name:
                    self._waiting.popleft()
                self._changed.notify_all()

    def _give_up_one(self) -> bool:
        for one in list(self._waiting)[1:]:
            if one[0].endswith(".npz"):
                self._waiting.remove(one)
                self._say(f"WARNING: {one[0]} is given up: too much waits to be written to {self._name}")
                return True
        return False


def _warn(line: str) -> None:
    print(f"rl results: {line}", file=sys.stderr, flush=True)
