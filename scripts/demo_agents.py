"""The agents of the demo: started, shown live line by line, asked what they wrote into their journals, and ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
ROOT = Path(__file__).parent.parent
COLOURS = {"a": "36", "b": "33", "c": "35"}


class DemoError(Exception):
    """Something that should have happened did not."""


def paint(text: str, code: str) -> str:
    """Colour a text, on a terminal."""
    return f"\033[{code}m{text}\033[0m" if sys.stdout.isatty() or os.environ.get("FORCE_COLOR") else text


def caption(text: str) -> None:
    """Tell what comes next."""
    print("\n" + paint(f"── {text}", "1"), flush=True)


def until(what: str, condition: Callable[[], T | None], within: float = 60.0) -> T:
    """
    Wait for something.

    :param what: its name, for the error
    :param condition: gives something true when it is there
    :param within: seconds until the demo has failed
    """
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise DemoError(f"{what}: not within {within:g}s")


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that ended and is not collected yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Program:
    """A program whose lines are shown with its name in front."""

    def __init__(self, name: str, argv: Sequence[str], hide: Callable[[str], bool] = lambda line: False) -> None:
        self.name = name
        self.lines: list[tuple[float, str]] = []
        variables = {key: value for key, value in os.environ.items() if not key.startswith(("LATTICE_", "PET_"))}
        self._hide = hide
        self.process = subprocess.Popen(
            argv,
            env={**variables, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches the demo, which then ends its programs in order
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.time(), line.rstrip("\n")))
            if not self._hide(line):
                print(paint(f"  {self.name} │ ", COLOURS.get(self.name, "2")) + line, end="", flush=True)

    def wait(self, within: float = 60.0) -> int:
        """Wait for the end of the program and its last line."""
        try:
            code = self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise DemoError(f"{self.name} did not end within {within:g}s") from None
        self._reader.join(10)
        return code

    def close(self, patience: float = 10.0) -> None:
        """End it if it runs."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(patience)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join(10)


class Agent(Program):
    """One `lattice run`."""

    def __init__(self, name: str, folder: Path, options: Sequence[str], entry: Sequence[str]) -> None:
        self._journal = folder / f"{name}.events"
        own = ["--framework", "pytorch", "--events", str(self._journal), "--log_dir", str(folder / "logs")]
        super().__init__(name, [sys.executable, "-m", "lattice", "run", *own, *options, *entry])

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Give the lines of one kind in the journal so far, each with its moment in seconds as ``moment``."""
        if not self._journal.exists():
            return []
        lines = [json.loads(line) for line in self._journal.read_text().splitlines(keepends=True) if line[-1] == "\n"]
        found = [line for line in lines if line["event"] == kind]
        return [{**line, "moment": datetime.fromisoformat(line["time"]).timestamp()} for line in found]

    def started(self, number: int) -> dict[str, Any] | None:
        """Give the start of this agent's workers in a round, from the journal."""
        return next((line for line in self.events("workers started") if line["round"] == number), None)

    def formed(self, world: int, after: float) -> tuple[float, int] | None:
        """Tell when the last worker of this agent said that its group had formed, and in which round, if all did."""
        said = [(at, line) for at, line in self.lines if f"group of {world} formed" in line and at > after]
        rounds = [int(line.split("round ")[1].split(":")[0]) for _, line in said]
        latest = [at for (at, _), number in zip(said, rounds, strict=True) if number == max(rounds)]
        return (max(latest), max(rounds)) if latest and len(latest) == len(self.pids()) else None

    def pids(self) -> list[int]:
        """Give the workers of the latest round, by rank."""
        return list(self.events("workers started")[-1]["pids"])
