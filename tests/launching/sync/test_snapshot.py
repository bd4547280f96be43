"""What is read of a project: as git has it, with digests that are right and not taken twice."""

from __future__ import annotations

import ctypes
import importlib.machinery
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import lattice
from lattice.errors import UsageError
from lattice.launching.sync import snapshot
from lattice.launching.sync.listing import list_files, project_folder
from lattice.launching.sync.manifest import File, Link, hasher
from lattice.launching.sync.places import places
from lattice.launching.sync.snapshot import ChangedMeanwhile, take
from tests.launching.sync.far import write

PR_SET_DUMPABLE = 4


def git(folder: Path, *words: str) -> None:
    own = (
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@y",
        "-c",
        "protocol.file.allow=always",
        "-c",
        "init.defaultBranch=m",
    )
    subprocess.run(["git", *own, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A work tree with all that git has names for."""
    other = write(tmp_path / "other", {"module.py": "", ".gitignore": "*.tmp\n"})
    git(other, "init", "-q")
    git(other, "add", ".")
    git(other, "commit", "-qm", "x")
    root = write(
        tmp_path / "tree",
        {
            "tracked.py": "1", "changed.py": "1", "removed.py": "1", "forced.tmp": "1", ".gitignore": "*.tmp\n/out/\n",
            "deep/.gitignore": "!kept.tmp\n",
        },
    )  # fmt: skip
    git(root, "init", "-q")
    git(root, "submodule", "add", "-q", str(other), "sub")
    git(root, "add", "-f", ".")
    git(root, "commit", "-qm", "x")
    git(root, "clone", "-q", str(other), "nested")
    write(root, {"new.py": "1", "x.tmp": "1", "out/x": "1", "deep/kept.tmp": "1", "changed.py": "22", "sub/x.tmp": "1"})
    (root / "removed.py").unlink()
    return root


def test_what_git_would_have_is_read_submodules_and_clones_included(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")  # as in a hook
    expected = {
        ".gitignore", ".gitmodules", "changed.py", "deep/.gitignore", "deep/kept.tmp", "forced.tmp", "new.py",
        "tracked.py", "sub/.gitignore", "sub/module.py", "nested/.gitignore", "nested/module.py",
    }  # fmt: skip
    taken = take(tree)
    assert set(taken.manifest.entries) == expected
    assert taken.manifest.entries["changed.py"] == File(hasher(b"22").hexdigest(), 2, 0o644)
    tracked = {one.path for one in list_files(tree) if one.tracked}
    assert {"tracked.py", "forced.tmp"} <= tracked and not {"new.py", "deep/kept.tmp"} & tracked


def test_without_git_it_is_the_same_but_for_what_is_tracked_and_ignored(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_git = set(take(tree).manifest.entries)
    monkeypatch.setenv("PATH", "/nowhere")
    assert set(take(tree).manifest.entries) == by_git - {"forced.tmp"}


def test_a_part_of_a_work_tree_obeys_the_rules_above_it(tree: Path) -> None:
    write(tree, {"deep/x.tmp": "1", "deep/y": "1"})
    assert set(take(tree / "deep").manifest.entries) == {".gitignore", "kept.tmp", "y"}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield write(tmp_path / "project", {"a.py": "aaa", "b.py": "bbb"})


def made_old(folder: Path) -> None:
    """Let a while pass for the files of a folder, as their times tell it."""
    for path in folder.iterdir():
        os.utime(path, ns=(0, time.time_ns() - 10**11))


@pytest.fixture
def digested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files whose digests are taken."""
    names: list[str] = []
    digest = snapshot._digest

    def noting(file, size):  # type: ignore[no-untyped-def]
        names.append(Path(file.name).name)
        return digest(file, size)

    monkeypatch.setattr(snapshot, "_digest", noting)
    return names


def digests(folder: Path, memory: Path) -> dict[str, str]:
    entries = take(folder, memory=memory).manifest.entries
    return {path: entry.digest for path, entry in entries.items() if isinstance(entry, File)}


def test_digests_are_remembered_until_a_file_changes(
    folder: Path, tmp_path: Path, digested: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "SETTLED", 0)  # the time of the change itself can't be set back
    memory = tmp_path / "cache" / "digests"
    first = digests(folder, memory)
    assert sorted(digested) == ["a.py", "b.py"]
    assert digests(folder, memory) == first and len(digested) == 2, "nothing was read again"
    # The same size, and a time that somebody set back.
    state = (folder / "a.py").stat()
    (folder / "a.py").write_text("xxx")
    os.utime(folder / "a.py", ns=(state.st_atime_ns, state.st_mtime_ns))
    assert digests(folder, memory) == {**first, "a.py": hasher(b"xxx").hexdigest()}
    assert digested[2:] == ["a.py"]
    # Another file of the same times and size.
    (folder / "b.py").rename(folder / "old")
    write(folder, {"b.py": "yyy"})
    assert digests(folder, memory)["b.py"] == hasher(b"yyy").hexdigest()
    memory.write_text("{ damaged")
    assert digests(folder, memory)["a.py"] == hasher(b"xxx").hexdigest()


def test_what_just_changed_is_not_remembered_as_its_times_may_not_tell_of_the_next_change(
    folder: Path, tmp_path: Path, digested: list[str]
) -> None:
    memory = tmp_path / "digests"
    made_old(folder)  # but not when that was done
    for _ in range(2):
        digests(folder, memory)
    assert sorted(digested) == ["a.py", "a.py", "b.py", "b.py"]


def test_where_the_cache_cannot_be_written_nothing_is_remembered(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert len(digests(folder, tmp_path / "file" / "digests")) == 2


def test_unreadable_files_are_named() -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as place:  # which others may look into
        folder = write(Path(place), {"a.py": "a", "b.py": "b"})
        folder.chmod(0o755)
        (folder / "a.py").chmod(0)
        (folder / "closed").mkdir(mode=0)
        os.mkfifo(folder / "pipe")
        try:
            if user == 0:
                os.seteuid(65534)  # root may read everything
            taken = take(folder)
        finally:
            os.seteuid(user)
            # A process that had another user is closed to others, in a container even to root: workers of later tests
            # could not open what it has for them.
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
            (folder / "closed").chmod(0o755)
    assert taken.left_out == {"a.py": "Permission denied", "closed": "cannot be listed"}
    assert set(taken.manifest.entries) == {"b.py"}


def test_links_stay_links(folder: Path, tmp_path: Path) -> None:
    (folder / "sub").mkdir()
    for name, target in {"near": "a.py", "gone": "nothing", "out": "/etc", "up": "../other"}.items():
        (folder / name).symlink_to(target)
    (folder / "sub" / "absolute").symlink_to(folder / "a.py")
    (folder / "around").symlink_to(folder)
    entries = take(folder).manifest.entries
    links = {path: entry.target for path, entry in entries.items() if isinstance(entry, Link)}
    assert links == {
        "near": "a.py", "gone": "nothing", "out": "/etc", "up": "../other", "sub/absolute": "../a.py", "around": ".",
    }  # fmt: skip


def test_where_the_launcher_writes_is_left_out(folder: Path) -> None:
    write(folder, {"logs/x.log": "1", "logs.py": "1"})
    assert set(take(folder, [str(folder / "logs"), "/elsewhere"]).manifest.entries) == {"a.py", "b.py", "logs.py"}


def test_a_content_is_read_as_it_was_or_not_at_all(folder: Path) -> None:
    taken = take(folder)
    (a, b) = (hasher(text).hexdigest() for text in (b"aaa", b"bbb"))
    with (folder / "a.py").open("a") as file:
        file.write("and more")
    assert b"".join(taken.read(a, 3, 2)) == b"aaa"
    (folder / "b.py").write_text("bb")
    with pytest.raises(ChangedMeanwhile, match=r"b\.py"):
        list(taken.read(b, 3, 2))
    (folder / "b.py").unlink()
    (folder / "b.py").symlink_to("/etc/passwd")
    with pytest.raises(ChangedMeanwhile, match=r"b\.py"):
        list(taken.read(b, 3, 2))


def main_of(path: Path, name: str | None = None) -> ModuleType:
    main = ModuleType("__main__")
    main.__file__ = str(path)
    main.__spec__ = importlib.machinery.ModuleSpec(name, None) if name else None
    return main


def test_the_project_of_the_script(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def auto(main: ModuleType) -> Path:
        monkeypatch.setitem(sys.modules, "__main__", main)
        return project_folder("auto")

    loose = write(tmp_path / "loose", {"pkg/deep/train.py": "", "pkg/__main__.py": "", "script.py": ""})
    monkeypatch.chdir(loose)
    assert auto(main_of(tree / "deep" / "train.py")) == tree
    assert auto(main_of(loose / "script.py")) == loose
    assert auto(main_of(loose / "pkg" / "deep" / "train.py")) == loose / "pkg" / "deep"
    assert auto(main_of(loose / "pkg" / "deep" / "train.py", "pkg.deep.train")) == loose, "python -m"
    assert auto(main_of(loose / "pkg" / "__main__.py", "pkg.__main__")) == loose
    assert auto(main_of(loose / "script.py", "script")) == loose
    assert auto(ModuleType("__main__")) == loose, "a notebook: the working directory"
    assert auto(main_of(Path(pytest.__file__))) == loose, "an installed program"
    monkeypatch.syspath_prepend(str(loose / "pkg"))
    for command in (Path(lattice.__file__).with_name("__main__.py"), Path("/usr/bin/lattice")):
        assert auto(main_of(command)) == loose / "pkg", "lattice launch pkg/file.py:function"
    monkeypatch.setenv("HOME", str(tree))
    assert auto(main_of(tree / "deep" / "train.py")) == tree / "deep", "a home folder is no project"
    assert project_folder(str(loose)) == project_folder(Path("../loose")) == loose
    monkeypatch.chdir("/")
    with pytest.raises(UsageError, match="name it"):
        auto(ModuleType("__main__"))


def test_which_paths_are_in_a_project(tmp_path: Path) -> None:
    root = write(tmp_path / "p", {"src/x.py": ""})
    (tmp_path / "link").symlink_to(root)
    given = [str(root), str(root / "src"), f"{tmp_path}/link/src", str(tmp_path), f"{root}2", f"{root}/../p/gone"]
    expected = {str(root): ".", str(root / "src"): "src", f"{tmp_path}/link/src": "src", f"{root}/../p/gone": "gone"}
    assert places(f"{tmp_path}/link", given) == expected
    write(root, {"__init__.py": ""})
    assert places(str(root), given) == {**expected, str(tmp_path): ".."}, "a project that is a package itself"
