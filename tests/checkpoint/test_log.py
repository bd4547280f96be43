"""The log of a place, with others who write there meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lattice.checkpoint import log
from lattice.checkpoint.history import Opened, Policy, Saved, folder_of
from lattice.checkpoint.storage.folder import Folder


class Interrupted(Folder):
    """A folder in which something happens just before the first removal."""

    def __init__(self, root: str, meanwhile: Callable[[], None]) -> None:
        super().__init__(root)
        self.meanwhile: Callable[[], None] | None = meanwhile

    def remove(self, name: str) -> None:
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        super().remove(name)


def test_who_is_overtaken_while_tidying_removes_nothing_of_who_did_it(tmp_path: Path) -> None:
    there = Folder(str(tmp_path))
    theirs, stray = folder_of(3, "new", 0), folder_of(9, "lost", 0)

    def overtake() -> None:
        log.add(there, Opened("new", "run", 2, 0.0))
        there.write(f"{theirs}/file", memoryview(b"data"))

    there.write(f"{stray}/file", memoryview(b"data"))
    log.add(there, Opened("old", "run", 1, 0.0))
    for step in (1, 2):
        folder = folder_of(step, "old", 0)
        there.write(f"{folder}/file", memoryview(b"data"))
        now = log.add(there, Saved("old", step, folder, {}, 0.0))
    storage = Interrupted(str(tmp_path), overtake)
    assert log.tidy(storage, now, Policy(last=1), "old") == [folder_of(1, "old", 0)]
    assert theirs in there.names("") and stray in there.names("")
    assert log.tidy(there, log.read(there), Policy(), "new") == [stray], "which they do themselves"
