"""A worker that was forked ends as a fresh one does: exit code, signal, traceback, last words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lattice.process.spawning import Guard
from tests.process.warm import WORKERS, Stage, python, stage
from tests.workers.zygote_endings import ENDINGS


@pytest.fixture(scope="module")
def endings() -> Iterator[Stage]:
    guard = Guard()
    with stage(guard, python("-u", str(WORKERS / "zygote_endings.py")), Path("/")) as it:
        it.warm_up(spares=0)  # none that a test could take for its own leak
        yield it
    guard.close()


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_way_to_end(endings: Stage, ending: str) -> None:
    cold, warm = endings.cold(RANK=ending), endings.warm(RANK=ending)
    assert cold.stdout.startswith(b"begins\n") or b"begins" in cold.stderr
    for result in (cold, warm):
        result.stderr = re.sub(rb"0x[0-9a-f]+", b"0x", result.stderr)
    assert warm == cold


@pytest.mark.parametrize(
    "source",
    ["a b", "\x00", "# -*- coding: nonsense -*-", "import does_not_exist", "def f(:\n", "1/0  # ä"],
)
@pytest.mark.parametrize("how", [["main.py"], ["-m", "main"]])
def test_scripts_that_do_not_even_begin(guard: Guard, tmp_path: Path, source: str, how: list[str]) -> None:
    (tmp_path / "main.py").write_text(source)
    with stage(guard, python("-u", *how), tmp_path) as it:
        it.warm_up()
        assert it.warm() == it.cold()


def test_a_script_that_is_gone(guard: Guard, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print('here')")
    with stage(guard, python("-u", "main.py"), tmp_path) as it:
        it.warm_up()
        (tmp_path / "main.py").unlink()
        cold, warm = it.cold(), it.warm()
    assert cold.exit.code == 2 and b"No such file" in cold.stderr
    assert warm == cold
