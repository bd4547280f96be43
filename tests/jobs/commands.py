"""Commands of ours, started from a process that has loaded what they need already: see :mod:`tests.jobs.warm`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.jobs.places import Said

ROOT = Path(__file__).parents[2]


class Commands:
    """Runs commands, one after another."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def run(self, words: Sequence[str], environ: Mapping[str, str], folder: Path, **more: object) -> Said:
        """
        Run a command to its end.

        :param more: what its process is asked besides
        """
        files = {name: str(folder / f".{name}") for name in ("out", "err")}
        request = {"words": words, "environ": dict(environ), "cwd": str(folder), **files, **more}
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return Said(code, *(Path(file).read_text() for file in files.values()))


@contextmanager
def commands(module: str) -> Iterator[Commands]:
    """
    Have the process for the length of a block.

    :param module: what it runs
    """
    argv = [sys.executable, "-m", module]
    process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield Commands(process)
    finally:
        process.kill()
        process.communicate()
