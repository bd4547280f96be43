"""A flood of lines: none is lost, late or out of its order, whoever wrote it and however the worker ends."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lattice
from lattice.launching.channel import CHUNK
from lattice.launching.handlers import Files, Origin
from tests.launching.test_launch import ALONE
from tests.waiting import eventually, patience

LINES = 20_000
LONG = "x" * (CHUNK + 1000)
SETTINGS: dict[str, Any] = {**ALONE, "workers_per_host": 1}


def flood() -> None:
    """Print lines, and write some in between as a library in C does it."""
    for number in range(LINES):
        if number == LINES // 2:
            print(LONG)
        if number % 100:
            print(number, "as Python prints it, a few words long")
        else:
            os.write(1, b"%d as C\n" % number)


def expected() -> str:
    """Give what arrives of that."""
    lines = [
        f"{number} {'as Python prints it, a few words long' if number % 100 else 'as C'}" for number in range(LINES)
    ]
    return "\n".join([*lines[: LINES // 2], LONG, *lines[LINES // 2 :]]) + "\n"


def flood_and_end(how: Callable[[], None]) -> None:
    flood()
    os.write(1, b"no end of line")
    how()


def flood_and_wait(heard: str) -> None:
    flood()
    print("the last before a long step")
    eventually(Path(heard).exists, within=120)


@pytest.mark.parametrize(
    "how",
    [
        lambda: None,
        lambda: os._exit(3),
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        lambda: os.kill(os.getpid(), signal.SIGSEGV),
    ],
    ids=["return", "_exit", "kill", "segfault"],
)
def test_every_line_arrives_in_its_place_however_the_worker_ends(how: Callable[[], None], tmp_path: Path) -> None:
    files = Files(str(tmp_path))
    try:
        lattice.launch(flood_and_end, (how,), **{**SETTINGS, "log_handlers": [files]})
    except lattice.WorkerFailedError:
        pass
    finally:
        files.close()
    text = Path(files.path(Origin("localhost", 0))).read_text()
    arrived = text[: len(expected())]
    assert (arrived == expected()) is True, "something is missing, or out of its place"
    assert text[len(arrived) :].startswith("no end of line\n")


def test_what_comes_last_arrives_while_the_worker_goes_on(tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    handle = lattice.launch(flood_and_wait, (str(heard),), wait=False, **SETTINGS)
    try:
        assert any(line.text == "the last before a long step" for line in handle.logs(follow=True))
        assert handle.status() == "running"
        heard.touch()
        handle.result(patience(120))
    finally:
        handle.cancel()
