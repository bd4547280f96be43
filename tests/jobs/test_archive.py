"""The same bytes for the same files, without what is ignored, and all of them again on the other side."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
import threading
import tracemalloc
from pathlib import Path

import pytest

from lattice.errors import UsageError
from lattice.jobs import archive, unpacking
from lattice.jobs.job import Code
from lattice.launching.sync.snapshot import Snapshot
from tests.launching.sync.far import write

said: list[str] = []
"""to the user, by the last archive"""


def pack(source: Path, script: str = "") -> bytes:
    said.clear()
    with archive.packed(Code(str(source), script), said.append) as made, made.open() as file:
        data = file.read()
        assert (made.size, made.digest) == (len(data), hashlib.sha256(data).hexdigest())
        return data


def unpack(source: Path, script: str, there: Path) -> list[str]:
    said.clear()
    with archive.packed(Code(str(source), script), said.append) as made, tarfile.open(made.path) as tar:
        unpacking.unpack(tar, there)
    return sorted(str(path.relative_to(there)) for path in there.rglob("*") if not path.is_dir())


def test_an_archive_has_the_same_bytes_whenever_and_wherever_it_is_made(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"z.py": "z", "a.py": "a", "b/c.py": "c"})
    two = write(tmp_path / "two", {"b/c.py": "c", "a.py": "a", "z.py": "z"})
    os.utime(two / "a.py", (0, 0))
    first = pack(one, "a.py")
    assert first == pack(two, "a.py")
    (two / "a.py").write_text("b")
    assert first != pack(two, "a.py")
    (two / "a.py").write_text("a")
    (two / "a.py").chmod(0o755)
    assert first != pack(two, "a.py")


def test_modes_links_and_odd_names_come_back(tmp_path: Path) -> None:
    folder = write(tmp_path / "code", {"run.sh": "#!/bin/sh\n", "ünïcode\nname": "x", "empty": "", "__pycache__/x": ""})
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("run.sh")
    (folder / "out").symlink_to("/nowhere")
    os.link(folder / "run.sh", folder / "twin.sh")
    os.mkfifo(folder / "pipe")
    there = tmp_path / "there"
    names = unpack(folder, "run.sh", there)
    assert names == sorted(["run.sh", "twin.sh", "link", "out", "ünïcode\nname", "empty"])
    assert os.access(there / "run.sh", os.X_OK)
    assert (there / "link").readlink() == Path("run.sh")
    assert (there / "out").readlink() == Path("/nowhere")
    assert (there / "twin.sh").read_text() == "#!/bin/sh\n"


@pytest.mark.parametrize("tracked", [False, True])
def test_what_is_ignored_stays_here(tmp_path: Path, tracked: bool) -> None:
    files = {
        ".gitignore": "*.log\n/data/\n", ".latticeignore": "*.ckpt\nnotes/\n!kept.ckpt\n",
        "sub/.latticeignore": "big\n",
        "main.py": "", "a.log": "", "data/x": "", "b.ckpt": "", "kept.ckpt": "", "notes/n": "", "sub/notes/n": "",
        "sub/big": "", "big": "", ".env": "SECRET=1",
    }  # fmt: skip
    folder = write(tmp_path / "code", files)
    if tracked:  # .latticeignore holds for these too
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        subprocess.run(["git", "add", "main.py", "b.ckpt", "notes", "sub"], cwd=folder, check=True)
    names = unpack(folder, "main.py", tmp_path / "there")
    assert names == [".gitignore", ".latticeignore", "big", "kept.ckpt", "main.py", "sub/.latticeignore"]
    assert said == [f"not sent of {folder}: .env (looks like a secret)"]


def test_a_script_that_is_ignored_is_an_error(tmp_path: Path) -> None:
    folder = write(tmp_path / "code", {".latticeignore": "main.py", "main.py": "", "sub/x.py": ""})
    with pytest.raises(UsageError, match=r"'main\.py' does not go along: \.gitignore or \.latticeignore names it"):
        pack(folder, "main.py")
    pack(folder, "./sub/../sub/x.py")


def test_a_script_of_a_role_that_is_ignored_is_an_error(tmp_path: Path) -> None:
    folder = write(tmp_path / "code", {".latticeignore": "act.py", "learn.py": "", "act.py": ""})
    packing = archive.packed(Code(str(folder)), print, ("learn.py", "act.py"))
    with pytest.raises(UsageError, match=r"'act\.py' does not go along"), packing:
        pass
    with archive.packed(Code(str(folder)), print, ("learn.py",)) as found:
        assert found.size


def test_one_script_goes_alone_whatever_links_lead_to_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "code", {"real.py": "print()", "other.py": ""})
    (folder / "train.py").symlink_to("real.py")
    assert unpack(folder / "train.py", "", tmp_path / "there") == ["train.py"]
    assert (tmp_path / "there" / "train.py").read_text() == "print()"
    assert not (tmp_path / "there" / "train.py").is_symlink()


def test_an_archive_elsewhere_is_not_fetched() -> None:
    with pytest.raises(UsageError, match="--on aws and --on kubernetes only"), archive.packed(Code("s3://b/x"), print):
        pass


def test_a_file_that_changes_while_it_is_packed_is_packed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "code", {"main.py": "1", "late.txt": "before, and longer"})
    real, changes = Snapshot.read, iter(["after", "at last"])

    def read(self: Snapshot, digest: str, size: int, chunk: int) -> object:
        if text := next(changes, ""):
            (folder / "late.txt").write_text(text)
        return real(self, digest, size, chunk)

    monkeypatch.setattr(Snapshot, "read", read)
    unpack(folder, "main.py", tmp_path / "there")
    assert (tmp_path / "there" / "late.txt").read_text() == "at last"


def test_a_large_folder_is_not_held_in_memory_and_can_be_read_by_several(tmp_path: Path) -> None:
    folder = write(tmp_path / "code", {"main.py": ""})
    (folder / "large").write_bytes(os.urandom(24 << 20))
    tracemalloc.start()
    try:
        with archive.packed(Code(str(folder), "main.py"), print) as made:
            found: list[str] = []

            def read() -> None:
                with made.open() as file:
                    digest = hashlib.sha256()
                    while data := file.read(1 << 20):
                        digest.update(data)
                found.append(digest.hexdigest())

            readers = [threading.Thread(target=read) for _ in range(3)]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
            assert found == [made.digest] * 3
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
