"""
A script that launches functions: ``launching.py lattice|torchrunx|pool FOLDER WHAT``, the same for each side.

Its moments, on the clock that all processes of a machine share, go to ``FOLDER/moments.json``; workers that something
is done to leave a stamp there, as those of ``stamped.py`` do.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

WORKERS = 2
LINES = 200_000
ARRAY = 62_500_000
"""numbers of 8 bytes in 500 MB"""
LONGEST_LIFE = 60.0

Run = Callable[..., Any]
"""runs a function with arguments in all workers, and gives its results"""


def lattice() -> AbstractContextManager[Run]:
    """Launch with Lattice."""
    from lattice import Launcher

    return nullcontext(Launcher(hostnames=["localhost"], workers_per_host=WORKERS, backend="gloo").run)


class pool:  # noqa: N801 - a word of the command line
    """Launch with Lattice, in agents that stay."""

    def __init__(self) -> None:
        from lattice import Launcher

        self._launcher = Launcher(hostnames=["localhost"], workers_per_host=WORKERS, backend="gloo")

    def __enter__(self) -> Run:
        return self._launcher.__enter__().run

    def __exit__(self, *error: Any) -> None:
        self._launcher.__exit__(*error)


def torchrunx() -> AbstractContextManager[Run]:
    """Launch with torchrunx, set up as its own page says."""
    from torchrunx import Launcher  # type: ignore[import-not-found]

    logging.basicConfig(level=logging.INFO)
    return nullcontext(Launcher(hostnames=["localhost"], workers_per_host=WORKERS, backend="gloo").run)


def nothing() -> int:
    """Do what costs nothing."""
    return int(os.environ["RANK"])


def changed(array: Any, folder: str) -> Any:
    """Give back as much as came."""
    stamp(folder, "line")
    return array + 1


def wordy(lines: int) -> None:
    """Print many lines."""
    rank = os.environ["RANK"]
    for number in range(lines):
        print(f"line {number} of rank {rank}: loss 0.123456, 1234.5 samples/s")


def patient(folder: str, seconds: float) -> None:
    """Leave a stamp, and wait."""
    stamp(folder, "group")
    time.sleep(seconds)


def stamp(folder: str, kind: str) -> None:
    """Leave a stamp."""
    facts = {"pid": os.getpid(), "rank": int(os.environ["RANK"]), "world": int(os.environ["WORLD_SIZE"])}
    path = Path(folder) / f"{os.getpid()}.{kind}"
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps({**facts, "at": time.monotonic()}))
    draft.rename(path)


def main(side: str, folder: str, what: str) -> None:
    """Launch."""
    moments: dict[str, float] = {}

    def now(name: str) -> None:
        moments[name] = time.monotonic()

    with {"lattice": lattice, "pool": pool, "torchrunx": torchrunx}[side]() as run:
        if what == "twice":
            for name in ("first", "second"):
                now(f"{name} call")
                results = run(nothing)
                now(f"{name} result")
                assert [results.rank(rank) for rank in range(WORKERS)] == list(range(WORKERS))
        elif what == "array":
            import numpy

            array = numpy.arange(ARRAY, dtype=numpy.float64)
            now("call")
            results = run(changed, array, folder)
            now("result")
            assert all(results.rank(rank)[-1] == ARRAY for rank in range(WORKERS))
        elif what == "lines":
            run(wordy, LINES)
            now("result")
        elif what == "death":
            try:
                run(patient, folder, LONGEST_LIFE)
            except Exception as error:
                now("exception")
                print(f"{type(error).__name__}: {error}", flush=True)
    Path(folder, "moments.json").write_text(json.dumps(moments))


if __name__ == "__main__":
    main(*sys.argv[1:])
