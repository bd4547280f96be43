"""Workers that stay with all that they started, and who is there of them: for tests of ends."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tests.agents import alive
from tests.waiting import eventually

WHO = ("worker", "agent", "child", "daemon")


def start_family(folder: str) -> None:
    """Start a child and a daemon in a session of its own, and write down all pids, the agent's among them."""
    child = subprocess.Popen(["sleep", "600"])
    daemon = subprocess.Popen(["sleep", "600"], start_new_session=True)
    pids = " ".join(map(str, (os.getpid(), os.getppid(), child.pid, daemon.pid)))
    name = f"{os.environ['LATTICE_RANK']}.{os.environ['LATTICE_ROUND']}"
    whole = Path(folder, f".{name}")
    whole.write_text(pids)
    whole.rename(Path(folder, name))


def stay(folder: str) -> None:
    """Start a family and live with it."""
    start_family(folder)
    time.sleep(600)


def talk(folder: str) -> NoReturn:
    """Start a family, and talk without end."""
    start_family(folder)
    while True:
        print("x" * 1000)
        time.sleep(0.001)


def talk_at_first(folder: str) -> str:
    """Talk without end in the first round, and tell in any other how many there are."""
    if os.environ["LATTICE_ROUND"] == "1":
        talk(folder)
    return os.environ["LATTICE_WORLD_SIZE"]


@dataclass(frozen=True)
class Families:
    """What workers wrote down in a folder."""

    folder: Path

    def pids(self, number: int, who: tuple[str, ...] = WHO) -> list[int]:
        """Wait until so many workers have started theirs, and give all that are among them."""
        eventually(lambda: len(list(self.folder.glob("[0-9]*"))) >= number, within=60)
        families = [path.read_text().split() for path in self.folder.glob("[0-9]*")]
        return [int(pid) for family in families for name, pid in zip(WHO, family, strict=True) if name in who]

    def gone(self, number: int, within: float = 30.0) -> None:
        """Wait until none of them is left."""
        pids = self.pids(number)
        eventually(lambda: not [pid for pid in pids if alive(pid)], within)
